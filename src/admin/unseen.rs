//! What to say to whoever changes a group of which nothing was ever seen: it may be set up in advance, or its name is mistyped.

use std::collections::BTreeSet;

use super::Admin;
use super::problem::Problem;
use super::sources;
use crate::driver::{Filter, Query, Sort};
use crate::event::Group;

/// Names that are compared: of so many groups with pending events, and of so many of the last events.
const NAMES_MAX: usize = 1_000;

/// Pages of the store that are read for an event of the group; beyond them nothing is claimed.
const PAGES_MAX: usize = 16;

/// Below this likeness a proposal confuses more than it helps.
const LIKENESS_MIN: f64 = 0.8;

/// The note; `None` when an event of the group is in the store, or when that is not known.
pub(super) async fn note(admin: &Admin, group: &Group) -> Result<Option<String>, Problem> {
    if !is_absent(admin, Query { group: Some(group.clone()), ..Query::default() }).await? {
        return Ok(None);
    }
    let known = known(admin).await?;
    let meant = nearest(group.as_str(), known.iter().map(Group::as_str));
    let meant = meant.map_or_else(String::new, |name| format!("; did you mean {name:?}?"));
    Ok(Some(format!("no event of this group was seen yet{meant}")))
}

/// Whether certainly no event fits.
async fn is_absent(admin: &Admin, query: Query) -> Result<bool, Problem> {
    let mut query = Query { limit: 1, ..query };
    for _ in 0..PAGES_MAX {
        let page = admin.handle.events(query.clone()).await.map_err(|error| Problem::Store(error.to_string()))?;
        match (page.records.is_empty(), page.next) {
            (false, _) => return Ok(false),
            (true, None) => return Ok(true),
            (true, next) => query.behind = next,
        }
    }
    Ok(false)
}

/// Why nothing can fit what a change is to be about; `None` where something may. A source that is no longer in the configuration may
/// still have events.
pub(super) async fn why_never(admin: &Admin, filter: &Filter) -> Result<Option<String>, Problem> {
    let source = filter.source.as_deref();
    if let Some(Err(Problem::NoSource(why))) = source.map(|source| sources::known(admin, source))
        && is_absent(admin, Query { source: filter.source.clone(), ..Query::default() }).await?
    {
        return Ok(Some(why));
    }
    match &filter.group {
        Some(group) => note(admin, group).await,
        None => Ok(None),
    }
}

/// Why a list may be empty: it asks for a source or a group that nobody knows; `None` where both are known.
pub(super) async fn why_nothing(
    admin: &Admin,
    source: Option<&str>,
    group: Option<&Group>,
) -> Result<Option<String>, Problem> {
    if let Some(Err(Problem::NoSource(why))) = source.map(|source| sources::known(admin, source)) {
        return Ok(Some(why));
    }
    match group {
        Some(group) => note(admin, group).await,
        None => Ok(None),
    }
}

async fn known(admin: &Admin) -> Result<BTreeSet<Group>, Problem> {
    let active = admin.handle.groups(Sort::Depth, NAMES_MAX).await?;
    let latest = admin.handle.events(Query { limit: NAMES_MAX, ..Query::default() }).await;
    let latest = latest.map_err(|error| Problem::Store(error.to_string()))?;
    let ended = latest.records.into_iter().map(|record| record.home().group.clone());
    Ok(active.into_iter().map(|view| view.group).chain(ended).collect())
}

/// The name that was probably meant: the same but for case, or with a few other letters.
pub(super) fn nearest<'n>(written: &str, known: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let lower = written.to_lowercase();
    let likeness = |name: &str| strsim::normalized_damerau_levenshtein(&lower, &name.to_lowercase());
    let best = known.map(|name| (likeness(name), name)).max_by(|a, b| a.0.total_cmp(&b.0));
    best.filter(|(likeness, name)| *likeness >= LIKENESS_MIN && *name != written).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_proposed_and_far_ones_are_not() {
        let known = || ["acme.myshopify.com", "umbrella", "~fallback"].into_iter();
        assert_eq!(nearest("Acme.MyShopify.com", known()), Some("acme.myshopify.com"));
        assert_eq!(nearest("amce.myshopify.com", known()), Some("acme.myshopify.com"));
        assert_eq!(nearest("umbrela", known()), Some("umbrella"));
        assert_eq!(nearest("initech", known()), None);
        assert_eq!(nearest("initech", std::iter::empty()), None);
    }
}
