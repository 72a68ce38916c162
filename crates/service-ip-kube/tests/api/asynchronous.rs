//! Tests of the async client and store, with the caller's client and watches.

use std::slice;

use k8s_openapi::serde::de::DeserializeOwned;
use kube::Config;
use kube::config::Kubeconfig;
use serde_json::{Value, from_value};
use vipline_service_ip::{AddressRange, Family, Registry};
use vipline_service_ip_kube::{Client, Event, Kube, Service, default_cidr, lifecycle, repair};

use crate::cluster::{Cluster, address, cidr, later, owner, second, service};

/// Returns a client as another program would build it.
fn kube_client(cluster: &Cluster) -> kube::Client {
    let kubeconfig = Kubeconfig::read_from(cluster.kubeconfig()).unwrap();
    let mut config = Config::try_from(kubeconfig).unwrap();
    config.default_retry = false;
    kube::Client::try_from(config).unwrap()
}

fn store(cluster: &Cluster) -> Kube {
    Kube::new(Client::new(kube_client(cluster)), Family::V4)
}

/// Returns the list of all ServiceCIDRs and IPAddresses.
fn listed(cidrs: &[Value], addresses: &[Value]) -> Event {
    fn objects<T: DeserializeOwned>(values: &[Value]) -> Vec<T> {
        let objects = values.iter().cloned().map(from_value);
        objects.collect::<Result<_, _>>().unwrap()
    }
    Event::Listed {
        cidrs: objects(cidrs),
        addresses: objects(addresses),
    }
}

#[tokio::test]
async fn addresses_are_allocated_with_the_callers_client() {
    let cluster = Cluster::with(&["10.0.0.0/24"]);
    let mut registry = Registry::new(store(&cluster));
    let web = owner("web");
    let address = registry.allocate_async(&web, || 4).await.unwrap();
    assert_eq!(
        cluster.addresses(),
        [(address.to_string(), "web".to_owned())]
    );
    assert!(registry.release_async(address, &web).await.unwrap());
    assert_eq!(cluster.addresses().len(), 0);
}

#[tokio::test]
async fn a_store_with_watches_sends_no_list_requests() {
    let cluster = Cluster::with(&["10.0.0.0/29"]);
    let before = cluster.server.requests().len();
    let mut registry = Registry::new(store(&cluster));
    let taken = address("10.0.0.1", "other");
    let range = cluster
        .server
        .object("ServiceCIDR", "", "kubernetes")
        .unwrap();
    cluster.server.apply(taken);
    let taken = cluster.server.object("IPAddress", "", "10.0.0.1").unwrap();
    registry
        .store_mut()
        .watch(listed(&[range], slice::from_ref(&taken)));
    let web = owner("web");
    // The other addresses, then the end of the range.
    for _ in 0..5 {
        registry.allocate_async(&web, || 0).await.unwrap();
    }
    let error = registry.allocate_async(&web, || 0).await.unwrap_err();
    assert!(error.to_string().contains("range is full"), "{error}");
    // Another process releases its address.
    let deleted = Event::AddressDeleted(from_value(taken).unwrap());
    registry.store_mut().watch(deleted);
    cluster.client().repair(later(), &mut |_| ()).unwrap();
    let lists_of_repair = 3;
    let address = registry.allocate_async(&web, || 0).await.unwrap();
    assert_eq!(address.to_string(), "10.0.0.1");
    let requests = cluster.server.requests().split_off(before);
    let lists = requests.iter().filter(|request| request.verb == "list");
    assert_eq!(lists.count(), lists_of_repair);
}

#[tokio::test]
async fn a_watched_range_in_deletion_is_not_used() {
    let cluster = Cluster::with(&["10.0.0.0/24"]);
    let mut registry = Registry::new(store(&cluster));
    let object = |name: &str| cluster.server.object("ServiceCIDR", "", name).unwrap();
    cluster.server.apply(cidr("second", &["10.1.0.0/24"]));
    let both = [object("kubernetes"), object("second")];
    registry.store_mut().watch(listed(&both, &[]));
    registry.allocate_async(&owner("web"), || 0).await.unwrap();
    let mut deleted = object("kubernetes");
    deleted["metadata"]["deletionTimestamp"] = "2027-01-01T00:00:00Z".into();
    let event = Event::Cidr(from_value(deleted).unwrap());
    registry.store_mut().watch(event);
    for _ in 0..4 {
        let address = registry.allocate_async(&owner("web"), || 0).await.unwrap();
        assert!(address.to_string().starts_with("10.1.0."), "{address}");
    }
    let gone = Event::CidrDeleted(from_value(object("second")).unwrap());
    registry.store_mut().watch(gone);
    let error = registry
        .allocate_async(&owner("web"), || 0)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("not ready"), "{error}");
}

#[tokio::test]
async fn objects_that_cannot_be_parsed_count_as_allocated() {
    let cluster = Cluster::with(&["10.0.0.0/30"]);
    let mut registry = Registry::new(store(&cluster));
    let range = cluster
        .server
        .object("ServiceCIDR", "", "kubernetes")
        .unwrap();
    // Without UID and version.
    let odd = address("10.0.0.1", "other");
    registry.store_mut().watch(listed(&[range], &[odd]));
    let address = registry.allocate_async(&owner("web"), || 0).await.unwrap();
    assert_eq!(address.to_string(), "10.0.0.2");
    let unreadable = registry.store().unreadable();
    assert_eq!(
        unreadable[0].to_string(),
        "read IPAddress 10.0.0.1: missing uid"
    );
}

#[tokio::test]
async fn plans_are_made_from_the_callers_objects_and_executed() {
    let cluster = Cluster::with(&["10.0.0.0/24"]);
    let client = Client::new(kube_client(&cluster));
    cluster.server.apply(service("web", &["10.0.0.7"]));
    let web = cluster.server.object("Service", "default", "web").unwrap();
    let web: k8s_openapi::api::core::v1::Service = from_value(web).unwrap();
    let range = cluster
        .server
        .object("ServiceCIDR", "", "kubernetes")
        .unwrap();
    let range: k8s_openapi::api::networking::v1::ServiceCIDR = from_value(range).unwrap();
    let (web, range) = (Service::try_from(web).unwrap(), range.try_into().unwrap());
    let plan = repair::plan(&[web], &[], &[range], second(0));
    for action in &plan.actions {
        client.execute(action).await.unwrap();
    }
    assert_eq!(
        cluster.addresses(),
        [("10.0.0.7".to_owned(), "web".to_owned())]
    );
    // A second execution conflicts, so that a controller plans again.
    let error = client.execute(&plan.actions[0]).await.unwrap_err();
    assert!(error.is_already_exists(), "{error}");
    let range = cluster
        .server
        .object("ServiceCIDR", "", "kubernetes")
        .unwrap();
    let range: k8s_openapi::api::networking::v1::ServiceCIDR = from_value(range).unwrap();
    let plan = lifecycle::plan(&[range.try_into().unwrap()], &[], second(0));
    for edit in &plan.edits {
        client.edit(edit).await.unwrap();
    }
    assert!(!plan.edits.is_empty());
    let second_range: AddressRange = "10.9.0.0/24".parse().unwrap();
    assert_eq!(
        default_cidr::plan(None, &[second_range], second(0)),
        default_cidr::Plan::Create
    );
    let error = client
        .create_default_cidr(&[second_range])
        .await
        .unwrap_err();
    assert!(error.is_already_exists(), "{error}");
}
