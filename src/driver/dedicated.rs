//! Which groups have slots of their own, remembered over a restart: without it a flood that is being worked off would share again until it
//! had been watched anew. Clocks are not remembered and begin anew.

use crate::event::Group;
use crate::store::notebook::Notebook;

/// The file of their names.
#[derive(Debug)]
pub(super) struct Promoted(Notebook);

impl Promoted {
    /// What `notebook` remembers.
    pub(super) fn open(notebook: Notebook) -> Result<(Self, Vec<Group>), String> {
        let bytes = notebook.read()?;
        let names: Vec<String> = if bytes.is_empty() {
            Vec::new()
        } else {
            serde_json::from_slice(&bytes)
                .map_err(|error| format!("{notebook}: {error}; remove the file to begin without them"))?
        };
        Ok((Self(notebook), names.iter().filter_map(|name| Group::from_written(name)).collect()))
    }

    /// Remembers these. Where they cannot be written down, a restart knows those from before.
    pub(super) fn keep(&self, groups: &[Group]) {
        let names: Vec<&str> = groups.iter().map(Group::as_str).collect();
        let kept = serde_json::to_vec(&names).map_err(|error| error.to_string()).and_then(|bytes| self.0.write(&bytes));
        if let Err(error) = kept {
            tracing::warn!(error, "which groups have slots of their own could not be written down");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_remembered_and_what_is_damaged_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let notebook = || Notebook::at(folder.path().join("dedicated.json"));
        let groups = [Group::of(&["café"]), Group::of(&["gh", "77"])];
        let (promoted, before) = Promoted::open(notebook()).unwrap();
        assert_eq!(before, []);
        promoted.keep(&groups);
        assert_eq!(Promoted::open(notebook()).unwrap().1, groups);
        std::fs::write(folder.path().join("dedicated.json"), "{").unwrap();
        assert!(Promoted::open(notebook()).unwrap_err().contains("remove the file"));
    }
}
