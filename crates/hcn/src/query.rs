//! Queries.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::document::{document, flags};
use crate::{Id, Version};

flags! {
    /// Flags of a query.
    pub struct QueryFlags {
        /// The reply has all members, not only the standard members.
        const DETAILED = 1;
    }
}

document! {
    /// A query for objects and their members.
    pub struct Query {
        /// Version of the schema of the reply.
        "SchemaVersion" schema_version: Version,
        /// Flags.
        "Flags"? flags: QueryFlags,
        /// Conditions as JSON in a string. Empty: all objects match.
        "Filter"? filter: String,
    }
}

impl Query {
    /// Creates a query for all objects.
    pub fn all() -> Self {
        Self {
            schema_version: Version::SCHEMA,
            ..Self::default()
        }
    }

    /// Creates a query for objects that match a filter.
    pub fn with_filter(filter: &Filter) -> Self {
        Self {
            filter: filter.to_json(),
            ..Self::all()
        }
    }

    /// Returns the filter, or `None` if it has another form.
    pub fn filter(&self) -> Option<Filter> {
        match &*self.filter {
            "" => Some(Filter::All),
            filter => serde_json::from_str(filter).ok(),
        }
    }
}

/// A condition of a query.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
pub enum Filter {
    /// The object with an identifier.
    #[serde(rename = "ID")]
    Id(Id),
    /// Objects with a name.
    Name(String),
    /// Endpoints of a network. HNS knows this condition by the name of version 1.
    #[serde(rename = "VirtualNetwork")]
    Network(Id),
    /// All objects.
    #[serde(skip)]
    All,
}

impl Filter {
    /// Returns the filter as JSON; empty for [`Self::All`].
    fn to_json(&self) -> String {
        let (key, value) = match self {
            Self::Id(id) => ("ID", id.as_str()),
            Self::Name(name) => ("Name", &**name),
            Self::Network(id) => ("VirtualNetwork", id.as_str()),
            Self::All => return String::new(),
        };
        Value::Object([(key.into(), value.into())].into_iter().collect()).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_json_in_a_string() {
        let query = Query::with_filter(&Filter::Name("over\"lay".into()));
        let json = serde_json::to_string(&query).unwrap();
        let expected =
            r#"{"SchemaVersion":{"Major":2,"Minor":0},"Filter":"{\"Name\":\"over\\\"lay\"}"}"#;
        assert_eq!(json, expected);
        let all = serde_json::to_string(&Query::all()).unwrap();
        assert_eq!(all, r#"{"SchemaVersion":{"Major":2,"Minor":0}}"#);
    }

    #[test]
    fn a_filter_is_read_from_its_json() {
        let id = Id::from_u128(7);
        let filters = [
            Filter::All,
            Filter::Id(id.clone()),
            Filter::Name("cbr0".into()),
            Filter::Network(id),
        ];
        for filter in filters {
            assert_eq!(Query::with_filter(&filter).filter(), Some(filter));
        }
        let mut query = Query::all();
        query.filter = r#"{"Flags":1}"#.into();
        assert_eq!(query.filter(), None);
    }
}
