//! An API server with objects and clients.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use apiserver::ApiServer;
use serde_json::{Value, json};
use testkit::scoped::Directory;
use vipline_service_ip::Family;
use vipline_service_ip::{Cidrs, OwnerRef, Registry};
use vipline_service_ip_kube::blocking::{Client, Kube};

/// Registry type of the tests.
pub(crate) type Allocator = Registry<Cidrs, Kube>;

/// An API server and its kubeconfig.
pub(crate) struct Cluster {
    pub(crate) server: ApiServer,
    directory: Directory,
}

impl Cluster {
    /// Starts an API server with a ServiceCIDR.
    pub(crate) fn with(ranges: &[&str]) -> Self {
        let cluster = Self {
            server: ApiServer::start(),
            directory: Directory::new().unwrap(),
        };
        let kubeconfig = cluster.server.kubeconfig();
        cluster.directory.write("kubeconfig", &kubeconfig).unwrap();
        cluster.server.apply(cidr("kubernetes", ranges));
        cluster
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.directory.path().join("kubeconfig")
    }

    pub(crate) fn client(&self) -> Client {
        Client::open(Some(&self.kubeconfig())).unwrap()
    }

    pub(crate) fn store(&self) -> Kube {
        Kube::new(Arc::new(self.client()), Family::V4)
    }

    pub(crate) fn allocator(&self) -> Allocator {
        Registry::new(self.store())
    }

    /// Returns the requests during a call, such as `create ipaddresses`.
    pub(crate) fn asked<T>(&self, act: impl FnOnce() -> T) -> (T, Vec<String>) {
        let before = self.server.requests().len();
        let value = act();
        let requests = self.server.requests().split_off(before);
        let words = |request: &apiserver::Request| format!("{} {}", request.verb, request.resource);
        (value, requests.iter().map(words).collect())
    }

    /// Returns the addresses on the server with their Services.
    pub(crate) fn addresses(&self) -> Vec<(String, String)> {
        let objects = self.server.objects("IPAddress");
        let pair = |object: &Value| {
            let parent = &object["spec"]["parentRef"];
            (text(&object["metadata"]["name"]), text(&parent["name"]))
        };
        objects.iter().map(pair).collect()
    }

    /// Sets the deletion timestamp of a ServiceCIDR that has a finalizer.
    pub(crate) fn delete_later(&self, name: &str, at: SystemTime) {
        let mut object = self.server.object("ServiceCIDR", "", name).unwrap();
        let since = at.duration_since(second(0)).unwrap().as_secs();
        let (minute, second) = (since / 60, since % 60);
        object["metadata"]["deletionTimestamp"] =
            format!("2027-01-01T00:{minute:02}:{second:02}Z").into();
        self.server.apply(object);
    }
}

/// 2027-01-01.
const NEW_YEAR: u64 = 1_798_761_600;

/// Returns the time `second` seconds after the start of 2027.
pub(crate) fn second(second: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(NEW_YEAR + second)
}

/// Returns a time after all grace periods of objects created by the tests.
pub(crate) fn later() -> SystemTime {
    SystemTime::now() + Duration::from_secs(3600)
}

/// Returns pseudorandom numbers.
pub(crate) fn random(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed;
    move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ mixed >> 29
    }
}

pub(crate) fn owner(name: &str) -> OwnerRef {
    OwnerRef::service("default", name)
}

pub(crate) fn cidr(name: &str, ranges: &[&str]) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "ServiceCIDR",
        "metadata": { "name": name },
        "spec": { "cidrs": ranges },
    })
}

/// Returns the IPAddress of a Service in upstream's form.
pub(crate) fn address(ip: &str, service: &str) -> Value {
    let family = if ip.contains(':') { "IPv6" } else { "IPv4" };
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "IPAddress",
        "metadata": {
            "name": ip,
            "labels": {
                "ipaddress.kubernetes.io/ip-family": family,
                "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
            },
        },
        "spec": {
            "parentRef": {
                "group": "",
                "resource": "services",
                "namespace": "default",
                "name": service,
            },
        },
    })
}

pub(crate) fn service(name: &str, ips: &[&str]) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": { "name": name, "namespace": "default" },
        "spec": { "clusterIP": ips.first(), "clusterIPs": ips, "type": "ClusterIP" },
    })
}

/// Returns the text of an error with its sources.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", chain(source)),
        None => error.to_string(),
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}
