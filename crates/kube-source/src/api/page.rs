//! A page of a list: one response of the server.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::objects::Object;
use super::parsed::{Parsed, Unreadable};

/// A page of a list.
///
/// Items are decoded one by one, so that an unreadable item affects no other
/// item, and memory holds one decoded item at a time.
#[derive(Debug, Deserialize)]
pub(crate) struct Page<'a> {
    /// Resource version and continue token.
    #[serde(default)]
    pub(crate) metadata: PageMetadata,
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

impl<'a> Page<'a> {
    /// Parses a page from JSON.
    ///
    /// # Errors
    ///
    /// The text is not a list.
    pub(crate) fn parse(text: &'a str) -> serde_json::Result<Self> {
        serde_json::from_str(text)
    }

    /// Returns the objects.
    pub(crate) fn items<O: Object>(&self) -> impl Iterator<Item = Result<Parsed<O>, Unreadable>> {
        let items = self.items.iter().flatten();
        items.map(|item| Parsed::parse(item.get()))
    }
}

/// Metadata of a page.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PageMetadata {
    /// Resource version of the list.
    pub(crate) resource_version: Option<String>,
    /// Continue token. Empty or absent on the last page.
    #[serde(rename = "continue")]
    pub(crate) next: Option<String>,
}

#[cfg(test)]
mod tests {
    use vipline_service_model::{Event, ObjectName};

    use super::*;
    use crate::api::objects::Service;

    #[test]
    fn a_page_has_a_continue_token() {
        let text = r#"{"kind": "ServiceList", "metadata": {"resourceVersion": "5", "continue": "c",
            "remainingItemCount": 3}, "items": [{"metadata": {"name": "web", "labels": null},
            "spec": {"clusterIP": "10.96.0.1"}, "status": {"loadBalancer": {}}}]}"#;
        let page = Page::parse(text).unwrap();
        let PageMetadata {
            resource_version,
            next,
        } = &page.metadata;
        assert_eq!(resource_version.as_deref(), Some("5"));
        assert_eq!(next.as_deref(), Some("c"));
        let parsed = page.items::<Service>().next().unwrap().unwrap();
        let Event::ServiceApplied(service) = parsed.object.applied() else {
            panic!("a Service is one");
        };
        assert_eq!(service.spec.cluster_ip, "10.96.0.1");
        let empty = Page::parse(r#"{"metadata": {}, "items": null}"#).unwrap();
        assert_eq!(empty.items::<Service>().count(), 0);
    }

    #[test]
    fn an_unreadable_object_does_not_affect_others_of_its_page() {
        let text = r#"{"metadata": {"resourceVersion": "5"}, "items": [
            {"metadata": {"name": "odd", "namespace": "shop"}, "spec": {"ports": [{"port": "x"}]}},
            7, {"metadata": {"name": "web", "namespace": "shop"}, "spec": {}}]}"#;
        let page = Page::parse(text).unwrap();
        let items: Vec<_> = page.items::<Service>().collect();
        let [Ok(odd), Err(_), Ok(web)] = &items[..] else {
            panic!("{items:?}")
        };
        assert_eq!(odd.object.name(), ObjectName::new("shop", "odd"));
        let dropped = odd.dropped.as_ref().unwrap().to_string();
        assert!(dropped.starts_with("spec.ports[0]"), "{dropped}");
        assert!(dropped.contains("expected u16"), "{dropped}");
        assert_eq!(web.object.name(), ObjectName::new("shop", "web"));
        assert!(web.dropped.is_none());
        assert!(Page::parse("[").is_err());
    }
}
