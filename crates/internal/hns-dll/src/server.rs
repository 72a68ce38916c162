//! The calls of HNS, with documents as text.
#![allow(clippy::disallowed_methods, reason = "IO file")]

use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use vipline_hcn::{
    Endpoint, Error, HResult, Id, LoadBalancer, Memory, ModifyRequest, Network, Query, Service,
    Version,
};

/// Environment variable with the path of the state.
pub const STATE: &str = "HNS_STATE";

/// HNS with its state in a file.
#[derive(Clone, Debug)]
pub struct Server {
    file: PathBuf,
}

/// The content of the file.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
struct State {
    version: Version,
    networks: Vec<Network>,
    #[serde(default)]
    endpoints: Vec<Endpoint>,
    #[serde(default)]
    load_balancers: Vec<LoadBalancer>,
}

/// A kind of object.
pub trait Object: Serialize + DeserializeOwned {
    /// Returns the identifier of the object.
    fn id(&self) -> &Id;

    /// Sets the identifier of a new object.
    fn set_id(&mut self, id: Id);

    /// Returns the objects that match a query.
    fn list(hns: &mut Memory, query: &Query) -> Result<Vec<Self>, Error>;

    /// Creates the object. An endpoint belongs to `network`.
    fn create(&self, hns: &mut Memory, network: &Id) -> Result<Self, Error>;

    /// Changes an object as a document requests.
    fn modify(hns: &mut Memory, id: &Id, change: &str) -> Result<(), Failure>;

    /// Deletes an object.
    fn delete(hns: &mut Memory, id: &Id) -> Result<(), Error>;
}

/// A failed call.
#[derive(Debug)]
pub enum Failure {
    /// HNS rejects the call.
    Rejected(Error),
    /// A document has an unexpected form.
    Document(serde_json::Error),
    /// The state cannot be read or written.
    State(io::Error),
}

impl Failure {
    /// Returns the code that the function returns.
    pub fn code(&self) -> HResult {
        match self {
            Self::Rejected(error) => error.code().unwrap_or(HResult::E_FAIL),
            Self::Document(_) => HResult::E_INVALIDARG,
            Self::State(_) => HResult::E_FAIL,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Rejected(error)
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Self::Document(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::State(error)
    }
}

impl Server {
    /// Uses the state in a file.
    pub fn new(file: &Path) -> Self {
        let file = file.to_owned();
        Self { file }
    }

    /// Returns the reply to a request of version 1 of the API.
    ///
    /// # Errors
    ///
    /// The state cannot be read.
    pub fn request(&self, method: &str, path: &str) -> Result<String, Failure> {
        let version = self.read()?.version()?;
        let reply = match (method, path) {
            ("GET", "/globals/version") => json!({ "Success": true, "Output": version }),
            _ => json!({ "Success": false, "Error": format!("no path {path}") }),
        };
        Ok(reply.to_string())
    }

    /// Returns the identifiers of the objects that match a query.
    ///
    /// # Errors
    ///
    /// The query is invalid, or the state cannot be read.
    pub fn enumerate<T: Object>(&self, query: &str) -> Result<String, Failure> {
        let objects = T::list(&mut self.read()?, &query_of(query)?)?;
        let ids: Vec<&Id> = objects.iter().map(Object::id).collect();
        Ok(serde_json::to_string(&ids)?)
    }

    /// Returns an object.
    ///
    /// # Errors
    ///
    /// The object does not exist, or the state cannot be read.
    pub fn get<T: Object>(&self, id: &Id, missing: HResult) -> Result<String, Failure> {
        let objects = T::list(&mut self.read()?, &Query::all())?;
        let object = objects.iter().find(|object| object.id() == id);
        let object = object.ok_or_else(|| Error::Rejected {
            operation: "read",
            object: id.as_str().into(),
            code: missing,
            message: "".into(),
        })?;
        Ok(serde_json::to_string(object)?)
    }

    /// Creates an object, and returns its identifier.
    ///
    /// # Errors
    ///
    /// HNS rejects the object, or the state cannot be read or written.
    pub fn create<T: Object>(&self, network: &Id, id: Id, settings: &str) -> Result<Id, Failure> {
        let mut object: T = serde_json::from_str(settings)?;
        object.set_id(id);
        self.change(|hns| Ok(object.create(hns, network)?.id().clone()))
    }

    /// Changes an object.
    ///
    /// # Errors
    ///
    /// HNS rejects the change, or the state cannot be read or written.
    pub fn modify<T: Object>(&self, id: &Id, change: &str) -> Result<(), Failure> {
        self.change(|hns| T::modify(hns, id, change))
    }

    /// Deletes an object.
    ///
    /// # Errors
    ///
    /// HNS rejects the deletion, or the state cannot be read or written.
    pub fn delete<T: Object>(&self, id: &Id) -> Result<(), Failure> {
        self.change(|hns| Ok(T::delete(hns, id)?))
    }

    fn read(&self) -> Result<Memory, Failure> {
        let state: State = serde_json::from_slice(&fs::read(&self.file)?)?;
        let hns = Memory::new().with_version(state.version);
        Ok(hns.with_objects(state.networks, state.endpoints, state.load_balancers))
    }

    /// Changes the state, and replaces the file. Unknown members of the file are lost.
    fn change<T>(
        &self,
        work: impl FnOnce(&mut Memory) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut hns = self.read()?;
        let result = work(&mut hns)?;
        let state = State {
            version: hns.version()?,
            networks: hns.all_networks().cloned().collect(),
            endpoints: hns.all_endpoints().cloned().collect(),
            load_balancers: hns.all_load_balancers().cloned().collect(),
        };
        let draft = self.file.with_extension("draft");
        let text: Value = serde_json::to_value(&state)?;
        fs::write(&draft, text.to_string())?;
        fs::rename(&draft, &self.file)?;
        Ok(result)
    }
}

fn query_of(text: &str) -> Result<Query, Failure> {
    match text {
        "" => Ok(Query::all()),
        text => Ok(serde_json::from_str(text)?),
    }
}

impl Object for Network {
    fn id(&self) -> &Id {
        &self.id
    }

    fn set_id(&mut self, id: Id) {
        self.id = id;
    }

    fn list(hns: &mut Memory, query: &Query) -> Result<Vec<Self>, Error> {
        hns.networks(query)
    }

    fn create(&self, hns: &mut Memory, _: &Id) -> Result<Self, Error> {
        hns.create_network(self)
    }

    fn modify(hns: &mut Memory, id: &Id, change: &str) -> Result<(), Failure> {
        let request: ModifyRequest = serde_json::from_str(change)?;
        Ok(hns.modify_network(id, &request).map(drop)?)
    }

    fn delete(hns: &mut Memory, id: &Id) -> Result<(), Error> {
        hns.delete_network(id)
    }
}

impl Object for Endpoint {
    fn id(&self) -> &Id {
        &self.id
    }

    fn set_id(&mut self, id: Id) {
        self.id = id;
    }

    fn list(hns: &mut Memory, query: &Query) -> Result<Vec<Self>, Error> {
        hns.endpoints(query)
    }

    fn create(&self, hns: &mut Memory, network: &Id) -> Result<Self, Error> {
        hns.create_endpoint(network, self)
    }

    fn modify(hns: &mut Memory, id: &Id, change: &str) -> Result<(), Failure> {
        let request: ModifyRequest = serde_json::from_str(change)?;
        Ok(hns.modify_endpoint(id, &request).map(drop)?)
    }

    fn delete(hns: &mut Memory, id: &Id) -> Result<(), Error> {
        hns.delete_endpoint(id)
    }
}

impl Object for LoadBalancer {
    fn id(&self) -> &Id {
        &self.id
    }

    fn set_id(&mut self, id: Id) {
        self.id = id;
    }

    fn list(hns: &mut Memory, query: &Query) -> Result<Vec<Self>, Error> {
        hns.load_balancers(query)
    }

    fn create(&self, hns: &mut Memory, _: &Id) -> Result<Self, Error> {
        hns.create_load_balancer(self)
    }

    fn modify(hns: &mut Memory, id: &Id, change: &str) -> Result<(), Failure> {
        let new: Self = serde_json::from_str(change)?;
        Ok(hns.modify_load_balancer(id, &new).map(drop)?)
    }

    fn delete(hns: &mut Memory, id: &Id) -> Result<(), Error> {
        hns.delete_load_balancer(id)
    }
}

#[cfg(test)]
mod tests {
    use testkit::scoped::Directory;

    use super::*;

    #[test]
    fn the_state_outlives_a_process() {
        let folder = Directory::new().unwrap();
        let file = folder.path().join("hns.json");
        fs::write(
            &file,
            r#"{"Version": {"Major": 15, "Minor": 4}, "Networks": []}"#,
        )
        .unwrap();
        let network = r#"{"Name": "cbr0", "Type": "L2Bridge"}"#;
        let nothing = Id::default();
        let created = Server::new(&file).create::<Network>(&nothing, Id::default(), network);
        let id = created.unwrap();
        let hns = Server::new(&file);
        assert_eq!(
            hns.enumerate::<Network>("").unwrap(),
            format!(r#"["{id}"]"#)
        );
        let endpoint = r#"{"IpConfigurations": [{"IpAddress": "10.244.2.1"}], "Flags": 1}"#;
        let endpoint = hns
            .create::<Endpoint>(&id, Id::default(), endpoint)
            .unwrap();
        let found = hns.get::<Endpoint>(&endpoint, HResult::E_FAIL).unwrap();
        assert!(found.contains(id.as_str()), "{found}");
        let in_use = hns.delete::<Network>(&id).unwrap_err();
        assert_ne!(in_use.code(), HResult::E_FAIL, "{in_use:?}");
        hns.delete::<Endpoint>(&endpoint).unwrap();
        let missing = hns.get::<Endpoint>(&endpoint, HResult::HCN_E_ENDPOINT_NOT_FOUND);
        assert_eq!(
            missing.unwrap_err().code(),
            HResult::HCN_E_ENDPOINT_NOT_FOUND
        );
        let version = hns.request("GET", "/globals/version").unwrap();
        assert!(version.contains(r#""Major":15"#), "{version}");
    }
}
