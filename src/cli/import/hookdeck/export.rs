//! The forms that an export has: a page of connections as the API lists them, a list of them, one of them, or an object with
//! sources, destinations and connections that refer to each other by id or name.

use serde_json::Value;

use super::fields::Fields;

/// What an export holds.
#[derive(Debug, Default)]
pub(super) struct Export {
    /// Every source once.
    pub(super) sources: Vec<Fields>,
    /// Every destination once.
    pub(super) destinations: Vec<Fields>,
    /// Every connection.
    pub(super) connections: Vec<Connection>,
    /// What has no counterpart beside them.
    pub(super) beside: Vec<String>,
}

/// From a source to a destination, by rules.
#[derive(Debug)]
pub(super) struct Connection {
    /// Its name, or its id.
    pub(super) name: String,
    /// What its owner wrote about it.
    pub(super) description: Option<String>,
    /// Which source, of [`Export::sources`].
    pub(super) source: usize,
    /// Which destination, of [`Export::destinations`].
    pub(super) destination: usize,
    /// Its rules, in their order.
    pub(super) rules: Vec<Value>,
    /// It takes no events.
    pub(super) disabled: bool,
    /// It takes events and delivers none.
    pub(super) paused: bool,
    /// What nobody took.
    pub(super) left: Vec<String>,
}

impl Export {
    /// Reads an export, in whichever form.
    ///
    /// # Errors
    /// Not JSON, or not in one of the forms; a connection whose source or destination is not there.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        const FORMS: &str = "expected what GET /connections answers (an object with `models`), a list of connections, or an object \
                             with `sources`, `destinations` and `connections`";
        let value: Value = serde_json::from_str(text).map_err(|error| format!("this is no JSON: {error}; {FORMS}"))?;
        let mut export = Self::default();
        let connections = match value {
            Value::Array(connections) => connections,
            value => {
                let mut all = Fields::of(value).ok_or_else(|| FORMS.to_owned())?;
                if all.has("source") || all.has("source_id") {
                    vec![all.whole_object()]
                } else if all.has("models") || all.has("connections") || all.has("sources") {
                    export.beside(&mut all)?
                } else {
                    return Err(FORMS.to_owned());
                }
            }
        };
        for connection in connections {
            export.connection(connection)?;
        }
        if export.connections.is_empty() && export.sources.is_empty() {
            return Err(format!("there is nothing in it; {FORMS}"));
        }
        Ok(export)
    }

    /// Takes sources and destinations that stand by themselves, and gives the connections.
    fn beside(&mut self, all: &mut Fields) -> Result<Vec<Value>, String> {
        for source in listed(all, "sources")? {
            self.sources.push(Fields::of(source).ok_or("a source is no object")?);
        }
        for destination in listed(all, "destinations")? {
            self.destinations.push(Fields::of(destination).ok_or("a destination is no object")?);
        }
        let mut connections = listed(all, "connections")?;
        connections.extend(listed(all, "models")?);
        if let Some(mut page) = all.object("pagination")
            && page.text("next").is_some()
        {
            self.beside.push(
                "this is one page of several: ask for a larger one (?limit=250), or put all of them into one list"
                    .to_owned(),
            );
        }
        all.drop(&["count"]);
        self.beside.extend(all.left());
        Ok(connections)
    }

    fn connection(&mut self, value: Value) -> Result<(), String> {
        let mut fields = Fields::of(value).ok_or("a connection is no object")?;
        let id = fields.text("id");
        let name = fields.text("name").or(id).ok_or("a connection has neither name nor id")?;
        let source = end(&mut self.sources, &mut fields, "source", &name)?;
        let destination = end(&mut self.destinations, &mut fields, "destination", &name)?;
        let connection = Connection {
            description: fields.text("description"),
            source,
            destination,
            rules: fields.list("rules").unwrap_or_default(),
            disabled: fields.text("disabled_at").is_some() | fields.text("archived_at").is_some(),
            paused: fields.text("paused_at").is_some(),
            name,
            left: {
                fields.drop(&["full_name", "team_id", "project_id", "created_at", "updated_at", "url"]);
                fields.left()
            },
        };
        self.connections.push(connection);
        Ok(())
    }
}

/// A list of that name, or a page (`models`) of that name.
fn listed(all: &mut Fields, name: &str) -> Result<Vec<Value>, String> {
    if let Some(list) = all.list(name) {
        return Ok(list);
    }
    match all.object(name) {
        Some(mut page) => page.list("models").ok_or_else(|| format!("{name} is neither a list nor a page with models")),
        None => Ok(Vec::new()),
    }
}

/// One end of a connection: the object in it, or what its id or name means.
fn end(known: &mut Vec<Fields>, connection: &mut Fields, what: &str, of: &str) -> Result<usize, String> {
    let same = |known: &[Fields], names: &[String]| {
        known.iter().position(|one| {
            ["id", "name"]
                .into_iter()
                .any(|field| one.peek(field).is_some_and(|text| names.iter().any(|name| name == text)))
        })
    };
    if let Some(object) = connection.object(what) {
        connection.drop(&[&format!("{what}_id")]);
        let names: Vec<String> =
            ["id", "name"].into_iter().filter_map(|field| object.peek(field).map(str::to_owned)).take(1).collect();
        return Ok(same(known, &names).unwrap_or_else(|| {
            known.push(object);
            known.len() - 1
        }));
    }
    let names: Vec<String> = [what.to_owned(), format!("{what}_id"), format!("{what}_name")]
        .iter()
        .filter_map(|field| connection.text(field))
        .collect();
    same(known, &names).ok_or_else(|| match names.first() {
        Some(name) => format!("connection {of:?} has the {what} {name:?}, which is not in the export"),
        None => format!("connection {of:?} has no {what}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONNECTION: &str = r#"{"id":"web_1","name":"c","source":{"id":"src_1","name":"s"},"destination":{"id":"des_1","name":"d"},"rules":null}"#;

    #[test]
    fn every_form_is_the_same() {
        let apart = r#"{"sources":[{"id":"src_1","name":"s"}],"destinations":{"models":[{"id":"des_1","name":"d"}]},
            "connections":[{"name":"c","source":"s","destination_id":"des_1"}]}"#;
        for text in [
            CONNECTION.to_owned(),
            format!("[{CONNECTION}]"),
            format!(r#"{{"pagination":{{"limit":100}},"count":1,"models":[{CONNECTION}]}}"#),
            format!(r#"{{"models":[{CONNECTION},{CONNECTION}]}}"#),
            apart.to_owned(),
        ] {
            let export = Export::read(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
            assert_eq!((export.sources.len(), export.destinations.len()), (1, 1), "{text}");
            assert_eq!(export.connections[0].name, "c");
            assert!(export.beside.is_empty(), "{:?}", export.beside);
        }
    }

    #[test]
    fn what_is_beside_them_and_further_pages_are_told() {
        let text = format!(
            r#"{{"models":[{CONNECTION}],"pagination":{{"next":"web_2"}},"transformations":[{{"name":"t"}}]}}"#
        );
        let beside = Export::read(&text).unwrap().beside.join("\n");
        assert!(beside.contains("one page of several") && beside.contains("transformations"), "{beside}");
    }

    #[test]
    fn what_is_no_export_is_refused_in_words() {
        for (text, why) in [
            ("{", "no JSON"),
            ("3", "expected what GET /connections answers"),
            ("{\"a\":1}", "expected what GET /connections answers"),
            ("[]", "nothing in it"),
            (r#"[{"name":"c","source_id":"src_9","destination_id":"des_9"}]"#, "which is not in the export"),
            (r#"[{"name":"c"}]"#, "has no source"),
            (r#"[{"source":{"name":"s"}}]"#, "neither name nor id"),
        ] {
            let error = Export::read(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
