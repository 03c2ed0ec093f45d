//! What a person does with the picture: keys in, wishes out.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::Value;

use super::picture::{Picture, Sort};

/// Rows that PgUp and PgDn move by.
const PAGE: usize = 10;

/// What is wanted of the gateway, or of the loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// Leave.
    Quit,
    /// Groups in this order.
    Sort(Sort),
    /// Look at one group more closely; `None`: at all of them again.
    Open(Option<String>),
    /// Pause a group, or let it go on.
    Pause(String, bool),
}

/// Where keys go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Mode {
    /// To the table, or to one group's page.
    #[default]
    Look,
    /// Into the filter.
    Filter,
    /// To the question whether a group shall be paused, or go on.
    Confirm(String, bool),
}

/// What is shown, and what is being done.
#[derive(Debug)]
pub(super) struct State {
    pub(super) picture: Picture,
    pub(super) sort: Sort,
    pub(super) filter: String,
    pub(super) mode: Mode,
    /// The row, among those that pass the filter.
    pub(super) selected: usize,
    /// The group that is looked at more closely.
    pub(super) open: Option<String>,
    /// What went wrong, or was done, last.
    pub(super) said: String,
}

impl State {
    pub(super) fn new(sort: Sort) -> Self {
        Self {
            picture: Picture::default(),
            sort,
            filter: String::new(),
            mode: Mode::Look,
            selected: 0,
            open: None,
            said: "asking …".to_owned(),
        }
    }

    /// Another picture. The row stays with its group where that is still there.
    pub(super) fn show(&mut self, picture: Picture) {
        let group = self.chosen().map(|row| row.group);
        self.picture = picture;
        let rows = self.picture.rows(&self.filter);
        let at =
            rows.iter().position(|row| group.is_some() && row.get("group").and_then(Value::as_str) == group.as_deref());
        self.selected = at.unwrap_or(self.selected).min(rows.len().saturating_sub(1));
    }

    /// The group that keys are about: the open one, else the row's.
    fn chosen(&self) -> Option<Chosen> {
        let chosen = |group: &Value| {
            let paused = group.get("paused") == Some(&Value::Bool(true));
            Some(Chosen { group: group.get("group")?.as_str()?.to_owned(), paused })
        };
        match (&self.open, &self.picture.detail) {
            (Some(_), detail) => chosen(&detail.as_ref()?.group),
            (None, _) => chosen(self.picture.rows(&self.filter).get(self.selected)?),
        }
    }

    /// A key; what follows of it.
    pub(super) fn key(&mut self, key: KeyEvent) -> Option<Wish> {
        if key.modifiers.contains(KeyModifiers::CONTROL) && matches!(key.code, KeyCode::Char('c' | 'C')) {
            return Some(Wish::Quit);
        }
        match std::mem::take(&mut self.mode) {
            Mode::Look => self.look(key.code),
            Mode::Filter => {
                self.type_filter(key.code);
                None
            }
            Mode::Confirm(group, pause) => match key.code {
                KeyCode::Char('y' | 'Y') => Some(Wish::Pause(group, pause)),
                _ => {
                    self.said = "nothing was changed".to_owned();
                    None
                }
            },
        }
    }

    fn look(&mut self, key: KeyCode) -> Option<Wish> {
        let last = self.picture.rows(&self.filter).len().saturating_sub(1);
        match key {
            KeyCode::Char('q') => return Some(Wish::Quit),
            KeyCode::Esc if self.open.is_some() => return Some(self.opened(None)),
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Enter => {
                let chosen = self.chosen()?;
                return Some(self.opened(Some(chosen.group)));
            }
            KeyCode::Char('p') => {
                let chosen = self.chosen()?;
                self.mode = Mode::Confirm(chosen.group, !chosen.paused);
            }
            KeyCode::Char('/') if self.open.is_none() => self.mode = Mode::Filter,
            KeyCode::Char('a') => return Some(self.sorted(Sort::Age)),
            KeyCode::Char('d') => return Some(self.sorted(Sort::Depth)),
            KeyCode::Char('s') => return Some(self.sorted(Sort::Seconds)),
            KeyCode::Char('r') => return Some(self.sorted(Sort::Rate)),
            KeyCode::Up | KeyCode::Char('k') => self.selected = self.selected.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.selected = (self.selected + 1).min(last),
            KeyCode::PageUp => self.selected = self.selected.saturating_sub(PAGE),
            KeyCode::PageDown => self.selected = (self.selected + PAGE).min(last),
            KeyCode::Home => self.selected = 0,
            KeyCode::End => self.selected = last,
            _ => {}
        }
        None
    }

    fn type_filter(&mut self, key: KeyCode) {
        self.mode = Mode::Filter;
        match key {
            KeyCode::Enter => self.mode = Mode::Look,
            KeyCode::Esc => {
                self.filter.clear();
                self.mode = Mode::Look;
            }
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Char(character) => self.filter.push(character),
            _ => {}
        }
        self.selected = 0;
    }

    fn opened(&mut self, group: Option<String>) -> Wish {
        self.open.clone_from(&group);
        self.picture.detail = None;
        Wish::Open(group)
    }

    fn sorted(&mut self, sort: Sort) -> Wish {
        self.sort = sort;
        self.selected = 0;
        Wish::Sort(sort)
    }
}

struct Chosen {
    group: String,
    paused: bool,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn state() -> State {
        let mut state = State::new(Sort::Age);
        let group = |name: &str, paused: bool| json!({ "group": name, "paused": paused });
        state.show(Picture {
            groups: vec![group("alpha", false), group("beta", true), group("alphabet", false)],
            ..Picture::default()
        });
        state
    }

    fn press(state: &mut State, keys: &str) -> Vec<Wish> {
        let code = |key| match key {
            '\n' => KeyCode::Enter,
            '\u{1b}' => KeyCode::Esc,
            'v' => KeyCode::Down,
            other => KeyCode::Char(other),
        };
        keys.chars().filter_map(|key| state.key(KeyEvent::new(code(key), KeyModifiers::NONE))).collect()
    }

    #[test]
    fn keys_become_wishes_about_the_row_that_is_marked() {
        let mut state = state();
        assert_eq!(press(&mut state, "v\n"), [Wish::Open(Some("beta".to_owned()))]);
        assert_eq!(press(&mut state, "\u{1b}"), [Wish::Open(None)]);
        assert_eq!(press(&mut state, "p"), []);
        assert_eq!(press(&mut state, "y"), [Wish::Pause("beta".to_owned(), false)], "a paused group is let go on");
        assert_eq!(press(&mut state, "vpn"), [], "whoever does not say yes has changed nothing");
        assert_eq!(press(&mut state, "d"), [Wish::Sort(Sort::Depth)]);
        assert_eq!(press(&mut state, "q"), [Wish::Quit]);
        let ctrl_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        press(&mut state, "/");
        assert_eq!(state.key(ctrl_c), Some(Wish::Quit), "also while a filter is typed");
    }

    #[test]
    fn a_filter_takes_letters_that_are_keys_elsewhere() {
        let mut state = state();
        assert_eq!(press(&mut state, "/phaq"), []);
        assert_eq!((state.filter.as_str(), state.picture.rows(&state.filter).len()), ("phaq", 0));
        state.key(KeyEvent::new(KeyCode::Backspace, KeyModifiers::NONE));
        assert_eq!(press(&mut state, "\nv\n"), [Wish::Open(Some("alphabet".to_owned()))]);
    }

    #[test]
    fn the_mark_stays_with_its_group() {
        let mut state = state();
        press(&mut state, "v");
        let mut next = state.picture.clone();
        next.groups.rotate_left(1);
        state.show(next);
        assert_eq!(state.selected, 0);
        state.show(Picture::default());
        assert_eq!((state.selected, press(&mut state, "p\nv")), (0, Vec::new()), "an empty table has no row");
    }
}
