//! HNS with documents as text, as the functions of Windows have it.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    Endpoint, Error, HResult, Id, LoadBalancer, ModifyRequest, Network, Query, SdnRoute, Service,
    Version,
};

/// The kind of an object.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    Network,
    Endpoint,
    LoadBalancer,
    SdnRoute,
}

impl Kind {
    /// Returns the name of the kind.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Network => "network",
            Self::Endpoint => "endpoint",
            Self::LoadBalancer => "load balancer",
            Self::SdnRoute => "SDN route",
        }
    }
}

/// The functions of HNS, with JSON as text.
pub(crate) trait TextService {
    /// Returns the reply to a request of version 1 of the API.
    fn request(&mut self, method: &str, path: &str) -> Result<String, Error>;

    /// Returns the identifiers of the objects that match a query.
    fn enumerate(&mut self, kind: Kind, query: &str) -> Result<String, Error>;

    /// Returns an object.
    fn read(&mut self, kind: Kind, id: &Id, query: &str) -> Result<String, Error>;

    /// Creates an object and returns it. An endpoint needs a network.
    fn create(
        &mut self,
        kind: Kind,
        network: Option<&Id>,
        id: &Id,
        settings: &str,
    ) -> Result<String, Error>;

    /// Changes an object and returns it.
    fn modify(&mut self, kind: Kind, id: &Id, settings: &str) -> Result<String, Error>;

    /// Deletes an object.
    fn delete(&mut self, kind: Kind, id: &Id) -> Result<(), Error>;
}

/// A reply of version 1 of the API.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Reply {
    success: bool,
    #[serde(default)]
    error: Box<str>,
    #[serde(default)]
    output: Value,
}

/// Creates an error of a document.
fn json_error(operation: &'static str, source: serde_json::Error) -> Error {
    Error::Json { operation, source }
}

/// Returns a document as text.
fn json(kind: &'static str, document: &impl Serialize) -> Result<String, Error> {
    serde_json::to_string(document).map_err(|source| json_error(kind, source))
}

/// Parses a reply.
fn parse<T: DeserializeOwned>(kind: &'static str, text: &str) -> Result<T, Error> {
    serde_json::from_str(text).map_err(|source| json_error(kind, source))
}

/// Returns the objects that match a query. An object that disappears meanwhile is skipped.
fn list<T: DeserializeOwned>(
    hns: &mut impl TextService,
    kind: Kind,
    query: &Query,
) -> Result<Vec<T>, Error> {
    let query = json(kind.name(), query)?;
    let ids: Vec<Id> = parse(kind.name(), &hns.enumerate(kind, &query)?)?;
    let mut objects = Vec::with_capacity(ids.len());
    for id in ids {
        match hns.read(kind, &id, &query) {
            Err(error) if error.is_not_found() => {}
            text => objects.push(parse(kind.name(), &text?)?),
        }
    }
    Ok(objects)
}

/// Creates an object.
fn create<T: DeserializeOwned + Serialize>(
    hns: &mut impl TextService,
    kind: Kind,
    network: Option<&Id>,
    id: &Id,
    document: &T,
) -> Result<T, Error> {
    let settings = json(kind.name(), document)?;
    parse(kind.name(), &hns.create(kind, network, id, &settings)?)
}

/// Changes an object.
fn modify<T: DeserializeOwned>(
    hns: &mut impl TextService,
    kind: Kind,
    id: &Id,
    change: &impl Serialize,
) -> Result<T, Error> {
    let settings = json(kind.name(), change)?;
    parse(kind.name(), &hns.modify(kind, id, &settings)?)
}

impl<S: TextService> Service for S {
    fn version(&mut self) -> Result<Version, Error> {
        const OPERATION: &str = "version";
        let reply: Reply = parse(OPERATION, &self.request("GET", "/globals/version")?)?;
        if !reply.success {
            return Err(Error::Rejected {
                operation: OPERATION,
                object: "HNS".into(),
                code: HResult::E_FAIL,
                message: reply.error,
            });
        }
        serde_json::from_value(reply.output).map_err(|source| json_error(OPERATION, source))
    }

    fn networks(&mut self, query: &Query) -> Result<Vec<Network>, Error> {
        list(self, Kind::Network, query)
    }

    fn create_network(&mut self, network: &Network) -> Result<Network, Error> {
        create(self, Kind::Network, None, &network.id, network)
    }

    fn modify_network(&mut self, id: &Id, request: &ModifyRequest) -> Result<Network, Error> {
        modify(self, Kind::Network, id, request)
    }

    fn delete_network(&mut self, id: &Id) -> Result<(), Error> {
        self.delete(Kind::Network, id)
    }

    fn endpoints(&mut self, query: &Query) -> Result<Vec<Endpoint>, Error> {
        list(self, Kind::Endpoint, query)
    }

    fn create_endpoint(&mut self, network: &Id, endpoint: &Endpoint) -> Result<Endpoint, Error> {
        let mut endpoint = endpoint.clone();
        endpoint.network = network.clone();
        create(self, Kind::Endpoint, Some(network), &endpoint.id, &endpoint)
    }

    fn modify_endpoint(&mut self, id: &Id, request: &ModifyRequest) -> Result<Endpoint, Error> {
        modify(self, Kind::Endpoint, id, request)
    }

    fn delete_endpoint(&mut self, id: &Id) -> Result<(), Error> {
        self.delete(Kind::Endpoint, id)
    }

    fn load_balancers(&mut self, query: &Query) -> Result<Vec<LoadBalancer>, Error> {
        list(self, Kind::LoadBalancer, query)
    }

    fn create_load_balancer(&mut self, new: &LoadBalancer) -> Result<LoadBalancer, Error> {
        create(self, Kind::LoadBalancer, None, &new.id, new)
    }

    fn modify_load_balancer(&mut self, id: &Id, new: &LoadBalancer) -> Result<LoadBalancer, Error> {
        modify(self, Kind::LoadBalancer, id, new)
    }

    fn delete_load_balancer(&mut self, id: &Id) -> Result<(), Error> {
        self.delete(Kind::LoadBalancer, id)
    }

    fn sdn_routes(&mut self, query: &Query) -> Result<Vec<SdnRoute>, Error> {
        list(self, Kind::SdnRoute, query)
    }

    fn create_sdn_route(&mut self, new: &SdnRoute) -> Result<SdnRoute, Error> {
        create(self, Kind::SdnRoute, None, &new.id, new)
    }

    fn modify_sdn_route(&mut self, id: &Id, new: &SdnRoute) -> Result<SdnRoute, Error> {
        modify(self, Kind::SdnRoute, id, new)
    }

    fn delete_sdn_route(&mut self, id: &Id) -> Result<(), Error> {
        self.delete(Kind::SdnRoute, id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SdnRoutePolicy;

    /// A service with one reply for each request, which records its requests.
    #[derive(Default)]
    struct Script {
        replies: Vec<Result<String, Error>>,
        requests: Vec<String>,
    }

    impl Script {
        fn new(replies: impl IntoIterator<Item = Result<&'static str, HResult>>) -> Self {
            let rejected = |code| Error::Rejected {
                operation: "read",
                object: "".into(),
                code,
                message: "".into(),
            };
            let replies = replies.into_iter();
            let mut replies: Vec<_> = replies
                .map(|it| it.map(str::to_owned).map_err(rejected))
                .collect();
            replies.reverse();
            let requests = Vec::new();
            Self { replies, requests }
        }

        fn reply(&mut self, request: String) -> Result<String, Error> {
            self.requests.push(request);
            self.replies.pop().unwrap()
        }
    }

    impl TextService for Script {
        fn request(&mut self, method: &str, path: &str) -> Result<String, Error> {
            self.reply(format!("{method} {path}"))
        }

        fn enumerate(&mut self, kind: Kind, query: &str) -> Result<String, Error> {
            self.reply(format!("enumerate {kind:?} {query}"))
        }

        fn read(&mut self, kind: Kind, id: &Id, query: &str) -> Result<String, Error> {
            self.reply(format!("read {kind:?} {id} {query}"))
        }

        fn create(
            &mut self,
            kind: Kind,
            network: Option<&Id>,
            id: &Id,
            settings: &str,
        ) -> Result<String, Error> {
            self.reply(format!("create {kind:?} {network:?} {id} {settings}"))
        }

        fn modify(&mut self, kind: Kind, id: &Id, settings: &str) -> Result<String, Error> {
            self.reply(format!("modify {kind:?} {id} {settings}"))
        }

        fn delete(&mut self, kind: Kind, id: &Id) -> Result<(), Error> {
            self.reply(format!("delete {kind:?} {id}")).map(drop)
        }
    }

    #[test]
    fn the_version_is_read_with_the_first_version_of_the_api() {
        let reply = r#"{"Success":true,"Output":{"Major":15,"Minor":4}}"#;
        let mut hns = Script::new([Ok(reply)]);
        assert_eq!(hns.version().unwrap(), Version::new(15, 4));
        assert_eq!(hns.requests, ["GET /globals/version"]);
        let mut hns = Script::new([Ok(r#"{"Success":false,"Error":"no such path"}"#)]);
        let error = hns.version().unwrap_err().to_string();
        let expected = "version HNS: unspecified failure (E_FAIL, 0x80004005): no such path";
        assert_eq!(error, expected);
    }

    #[test]
    fn an_object_that_disappears_during_a_listing_is_skipped() {
        let ids = r#"["A","B","C"]"#;
        let script = |second| {
            [
                Ok(ids),
                Ok(r#"{"ID":"A"}"#),
                Err(second),
                Ok(r#"{"ID":"C"}"#),
            ]
        };
        let mut hns = Script::new(script(HResult::HCN_E_ENDPOINT_NOT_FOUND));
        let endpoints = hns.endpoints(&Query::all()).unwrap();
        let ids: Vec<_> = endpoints.iter().map(|it| it.id.as_str()).collect();
        assert_eq!(ids, ["A", "C"]);
        let query = r#"{"SchemaVersion":{"Major":2,"Minor":0}}"#;
        assert_eq!(hns.requests[0], format!("enumerate Endpoint {query}"));
        assert_eq!(hns.requests[3], format!("read Endpoint C {query}"));
        let mut hns = Script::new(script(HResult::E_ACCESSDENIED));
        let error = hns.endpoints(&Query::all()).unwrap_err();
        assert_eq!(error.code(), Some(HResult::E_ACCESSDENIED));
    }

    #[test]
    fn an_endpoint_is_created_with_the_identifier_of_its_network() {
        let mut hns = Script::new([Ok(r#"{"ID":"A","HostComputeNetwork":"N"}"#)]);
        let endpoint = Endpoint::local("10.0.0.1".parse().unwrap());
        let created = hns.create_endpoint(&Id::new("N"), &endpoint).unwrap();
        assert_eq!((created.id.as_str(), created.network.as_str()), ("A", "N"));
        assert!(
            hns.requests[0].contains(r#""HostComputeNetwork":"N""#),
            "{:?}",
            hns.requests
        );
    }

    #[test]
    fn sdn_routes_are_objects_like_load_balancers() {
        let document = r#"{"ID":"R","HostComputeEndpoints":["E"]}"#;
        let ids = r#"["R"]"#;
        let mut hns = Script::new([document, ids, document, document, ""].map(Ok));
        let route = SdnRoutePolicy::new("10.96.0.0/12", "10.244.1.2");
        let new = SdnRoute::new(route, [Id::new("E")]);
        assert_eq!(hns.create_sdn_route(&new).unwrap().id, Id::new("R"));
        assert_eq!(
            hns.sdn_routes(&Query::all()).unwrap()[0].endpoints,
            [Id::new("E")]
        );
        hns.modify_sdn_route(&Id::new("R"), &new).unwrap();
        hns.delete_sdn_route(&Id::new("R")).unwrap();
        let settings = r#"{"HostComputeEndpoints":["E"],"Setting":[{"DestinationPrefix":"10.96.0.0/12","NextHop":"10.244.1.2"}],"SchemaVersion":{"Major":2,"Minor":0}}"#;
        let query = r#"{"SchemaVersion":{"Major":2,"Minor":0}}"#;
        let expected = [
            format!("create SdnRoute None  {settings}"),
            format!("enumerate SdnRoute {query}"),
            format!("read SdnRoute R {query}"),
            format!("modify SdnRoute R {settings}"),
            "delete SdnRoute R".to_owned(),
        ];
        assert_eq!(hns.requests, expected);
    }

    #[test]
    fn a_reply_that_is_no_document_is_an_error_with_the_kind() {
        let mut hns = Script::new([Ok(r#"{"ID":7}"#)]);
        let error = hns
            .create_network(&Network::default())
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("network: invalid type: integer `7`"),
            "{error}"
        );
    }
}
