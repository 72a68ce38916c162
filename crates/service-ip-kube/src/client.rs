//! Requests to the API server.
//!
//! The client has its own tokio runtime, which runs in the calling thread while it
//! waits for a response.
#![allow(clippy::disallowed_methods, reason = "IO file")]

use std::fmt::{self, Debug};
use std::io;
use std::net::IpAddr;
use std::panic::resume_unwind;
use std::path::Path;
use std::thread;
use std::time::Duration;

use k8s_openapi::api::core::v1::Service as ServiceObject;
use k8s_openapi::api::networking::v1::{IPAddress, ServiceCIDR};
use k8s_openapi::serde::de::DeserializeOwned;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::config::Kubeconfig;
use kube::core::{ObjectList, Request as Resource};
use kube::{Config, ResourceExt};
use serde_json::Value;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::time::timeout;
use vipline_service_ip::{AddressRange, Family, OwnerRef};

use crate::error::chain;
use crate::service_cidr::Edit;
use crate::{
    Cause, Error, IpAddress, Service, ServiceCidr, default_cidr, ip_address, service_cidr,
};

/// Connection timeout.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Default request timeout.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// Page size of list requests.
const PAGE_SIZE: u32 = 500;

/// Maximum number of attempts of a list with expired continue tokens.
const LIST_ATTEMPTS: usize = 4;

/// A kind of API object.
trait Object:
    kube::Resource<DynamicType = ()>
    + k8s_openapi::Resource
    + Clone
    + Debug
    + DeserializeOwned
    + Send
    + 'static
{
    /// Plural of the kind.
    const PLURAL: &'static str;
}

impl Object for IPAddress {
    const PLURAL: &'static str = "IPAddresses";
}

impl Object for ServiceCIDR {
    const PLURAL: &'static str = "ServiceCIDRs";
}

impl Object for ServiceObject {
    const PLURAL: &'static str = "Services";
}

/// A list of objects, each parsed separately.
pub(crate) struct Listed<T> {
    /// Parsed objects.
    pub(crate) objects: Vec<T>,
    /// Objects that cannot be parsed.
    pub(crate) unreadable: Vec<Unreadable>,
}

/// An object that cannot be parsed.
#[derive(Debug)]
pub(crate) struct Unreadable {
    /// Name of the object.
    pub(crate) name: Box<str>,
    /// Error with kind and name of the object.
    pub(crate) error: Error,
}

impl<T> Listed<T> {
    fn push<K: Object>(&mut self, object: Value, read: &impl Fn(K) -> Result<T, Box<str>>) {
        let text = |field| {
            object["metadata"][field]
                .as_str()
                .unwrap_or_default()
                .into()
        };
        let (namespace, name): (Box<str>, Box<str>) = (text("namespace"), text("name"));
        let parsed = serde_json::from_value(object).map_err(|error| chain(&error));
        match parsed.and_then(read) {
            Ok(object) => self.objects.push(object),
            Err(why) => {
                let slash = if namespace.is_empty() { "" } else { "/" };
                let object = format!("{} {namespace}{slash}{name}", K::KIND);
                let error = unreadable(object, why);
                self.unreadable.push(Unreadable { name, error });
            }
        }
    }
}

/// A client of the API server.
///
/// All methods block the thread until the server has responded.
/// Within a tokio runtime, a method runs in an additional thread for the time of the
/// call, but still blocks the task. Use `spawn_blocking` there.
pub struct Client {
    /// `None` only during drop.
    runtime: Option<Runtime>,
    kube: kube::Client,
    server: String,
    /// Request timeout.
    timeout: Duration,
}

impl Client {
    /// Returns a client for a kubeconfig, or for the Service account of the pod.
    ///
    /// Does not send a request.
    ///
    /// # Errors
    ///
    /// [`Cause::Configuration`]: the credentials cannot be read or used.
    pub fn open(kubeconfig: Option<&Path>) -> Result<Self, Error> {
        let object = kubeconfig.map_or_else(
            || "credentials of the pod".to_owned(),
            |path| path.display().to_string(),
        );
        let wrong = |why| Error::new("read", &object, Cause::Configuration(why));
        let mut config = config(kubeconfig).map_err(wrong)?;
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        // The client must not repeat a request that may have been applied.
        config.default_retry = false;
        let server = config.cluster_url.to_string();
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| wrong(chain(&error)))?;
        let kube = {
            let _guard = runtime.enter();
            kube::Client::try_from(config).map_err(|error| wrong(chain(&error)))?
        };
        Ok(Self {
            runtime: Some(runtime),
            kube,
            server,
            timeout: DEFAULT_TIMEOUT,
        })
    }

    /// Sets the request timeout. Default: 60 s.
    ///
    /// The server may still apply a request after the timeout.
    #[must_use]
    pub const fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Returns all IPAddresses, or with a family those without the label of the other
    /// family. The label may be missing.
    pub(crate) fn addresses(&self, family: Option<Family>) -> Result<Listed<IpAddress>, Error> {
        let label =
            |family: Family| format!("{}!={}", ip_address::FAMILY_LABEL, family.other().label());
        let read = |object| IpAddress::read(object).map_err(|error| chain(&error));
        self.list(family.map(label).as_deref(), read)
    }

    /// Returns all ServiceCIDRs. A ServiceCIDR with an invalid range is in both lists.
    pub(crate) fn service_cidrs(&self) -> Result<Listed<ServiceCidr>, Error> {
        let mut listed = self.list(None, ServiceCidr::read)?;
        for cidr in &listed.objects {
            let errors = cidr.unreadable.iter().map(|error| Unreadable {
                name: cidr.name.clone(),
                error: unreadable(named_cidr(&cidr.name), chain(error)),
            });
            listed.unreadable.extend(errors);
        }
        Ok(listed)
    }

    /// Returns all Services.
    ///
    /// A Service that cannot be parsed is an error: its addresses are unknown, and must
    /// not be released.
    pub(crate) fn services(&self) -> Result<Vec<Service>, Error> {
        let read = |object| Service::read(object).map_err(|error| chain(&error));
        let listed = self.list::<ServiceObject, _>(None, read)?;
        match listed.unreadable.into_iter().next() {
            Some(unreadable) => Err(unreadable.error),
            None => Ok(listed.objects),
        }
    }

    /// Creates the IPAddress of an owner and returns its UID.
    pub(crate) fn create_address(
        &self,
        ip: IpAddr,
        owner: &OwnerRef,
        manager: &str,
    ) -> Result<Box<str>, Error> {
        let api = self.all::<IPAddress>();
        let object = ip_address::object(ip, owner, manager);
        let params = PostParams::default();
        let name = named_address(ip);
        let created = self.send("create", &name, api.create(&params, &object))?;
        let unreadable = || Cause::Unreadable("missing uid".into());
        let uid = created.metadata.uid.map(Into::into);
        uid.ok_or_else(|| Error::new("create", &name, unreadable()))
    }

    /// Deletes an IPAddress if UID and version match.
    pub(crate) fn delete_address(
        &self,
        ip: IpAddr,
        uid: &str,
        version: Option<&str>,
    ) -> Result<(), Error> {
        let api = self.all::<IPAddress>();
        let params = DeleteParams::default().preconditions(Preconditions {
            resource_version: version.map(Into::into),
            uid: Some(uid.into()),
        });
        let name = ip.to_string();
        let deleted = self.send("delete", &named_address(ip), api.delete(&name, &params));
        deleted.map(drop)
    }

    /// Sets the labels of an IPAddress.
    pub(crate) fn label_address(&self, ip: IpAddr, version: &str) -> Result<(), Error> {
        let api = self.all::<IPAddress>();
        let patch = Patch::Merge(ip_address::label_patch(ip, version));
        let (name, params) = (ip.to_string(), PatchParams::default());
        let patched = api.patch(&name, &params, &patch);
        self.send("change", &named_address(ip), patched).map(drop)
    }

    /// Creates the default ServiceCIDR.
    pub(crate) fn create_default(&self, ranges: &[AddressRange]) -> Result<(), Error> {
        let api = self.all::<ServiceCIDR>();
        let object = service_cidr::object(default_cidr::NAME, ranges);
        let (name, params) = (named_cidr(default_cidr::NAME), PostParams::default());
        self.send("create", &name, api.create(&params, &object))
            .map(drop)
    }

    /// Patches a ServiceCIDR and then its status.
    pub(crate) fn edit(&self, edit: &Edit) -> Result<(), Error> {
        let api = self.all::<ServiceCIDR>();
        let (object, params) = (named_cidr(&edit.name), PatchParams::default());
        let mut version = edit.version.to_string();
        if let Some(patch) = edit.patch().map(Patch::Merge) {
            let patched = self.send("change", &object, api.patch(&edit.name, &params, &patch))?;
            version = patched.resource_version().unwrap_or_default();
        }
        if let Some(patch) = edit.status(&version).map(Patch::<Value>::Merge) {
            let patched = api.patch_status(&edit.name, &params, &patch);
            self.send("change the status of", &object, patched)?;
        }
        Ok(())
    }

    /// Returns the objects of a kind, optionally with a label selector.
    fn list<K, T>(
        &self,
        labels: Option<&str>,
        read: impl Fn(K) -> Result<T, Box<str>>,
    ) -> Result<Listed<T>, Error>
    where
        K: Object,
    {
        let mut lists = 1..LIST_ATTEMPTS;
        loop {
            match self.pages(labels, &read) {
                Err(error) if error.is_expired() && lists.next().is_some() => {}
                listed => return listed,
            }
        }
    }

    fn pages<K, T>(
        &self,
        labels: Option<&str>,
        read: &impl Fn(K) -> Result<T, Box<str>>,
    ) -> Result<Listed<T>, Error>
    where
        K: Object,
    {
        let resource = Resource::new(K::url_path(&(), None));
        let mut params = ListParams::default().limit(PAGE_SIZE);
        params.label_selector = labels.map(Into::into);
        let mut listed = Listed {
            objects: Vec::new(),
            unreadable: Vec::new(),
        };
        loop {
            let page = async {
                let request = resource.list(&params).map_err(kube::Error::BuildRequest)?;
                self.kube.request::<ObjectList<Value>>(request).await
            };
            let page = self.send("list", K::PLURAL, page)?;
            for object in page.items {
                listed.push::<K>(object, read);
            }
            params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
            if params.continue_token.is_none() {
                return Ok(listed);
            }
        }
    }

    fn all<K: Object>(&self) -> Api<K> {
        Api::all(self.kube.clone())
    }

    /// Sends a request and waits for the response.
    fn send<T: Send>(
        &self,
        operation: &'static str,
        object: &str,
        request: impl Future<Output = kube::Result<T>> + Send,
    ) -> Result<T, Error> {
        let answered = self.wait(async { timeout(self.timeout, request).await });
        let cause = match answered {
            Ok(Ok(Ok(answer))) => return Ok(answer),
            Ok(Ok(Err(error))) => Cause::of_request(error),
            Ok(Err(_)) => Cause::NoResponse(format!("timeout after {:?}", self.timeout).into()),
            Err(error) => Cause::NotSent(chain(&error)),
        };
        Err(Error::new(operation, object, cause))
    }

    fn wait<T: Send>(&self, future: impl Future<Output = T> + Send) -> io::Result<T> {
        let runtime = self.runtime.as_ref();
        let runtime = runtime.expect("the runtime exists until the client is dropped");
        if Handle::try_current().is_err() {
            return Ok(runtime.block_on(future));
        }
        // A thread cannot block on a runtime within another runtime.
        thread::scope(|scope| {
            let waiting =
                thread::Builder::new().spawn_scoped(scope, || runtime.block_on(future))?;
            Ok(waiting.join().unwrap_or_else(|panic| resume_unwind(panic)))
        })
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Dropping a runtime within another runtime must not block.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("server", &self.server)
            .finish_non_exhaustive()
    }
}

fn config(kubeconfig: Option<&Path>) -> Result<Config, Box<str>> {
    let Some(path) = kubeconfig else {
        return Config::incluster().map_err(|error| chain(&error));
    };
    let kubeconfig = Kubeconfig::read_from(path).map_err(|error| chain(&error))?;
    let mut clusters = kubeconfig.clusters.iter().flat_map(|named| &named.cluster);
    let has_proxy = clusters.any(|cluster| cluster.proxy_url.is_some());
    let mut config = Config::try_from(kubeconfig).map_err(|error| chain(&error))?;
    if !has_proxy {
        // A library must not use proxy settings of the environment.
        config.proxy_url = None;
    }
    Ok(config)
}

fn unreadable(object: String, why: Box<str>) -> Error {
    Error::new("read", object, Cause::Unreadable(why))
}

fn named_address(ip: IpAddr) -> String {
    format!("IPAddress {ip}")
}

fn named_cidr(name: &str) -> String {
    format!("ServiceCIDR {name}")
}
