//! Authentication and discovery.

use std::net::Ipv6Addr;

use apiserver::ApiServer;
use k8s_openapi::api::core::v1::Service;
use kube::api::ListParams;
use kube::{Api, Client, Error};

use crate::support::{client, service};

async fn services(client: &Client) -> Result<usize, Error> {
    let services = Api::<Service>::all(client.clone());
    Ok(services.list(&ListParams::default()).await?.items.len())
}

/// Returns the code and reason of a Status error.
fn status_error(result: Result<usize, Error>) -> (u16, String) {
    match result {
        Err(Error::Api(status)) => (status.code, status.reason),
        other => panic!("not a Status error: {other:?}"),
    }
}

/// Returns the line of a kubeconfig that begins with `begin`.
fn line<'a>(kubeconfig: &'a str, begin: &str) -> &'a str {
    let mut lines = kubeconfig.lines();
    lines.find(|line| line.trim().starts_with(begin)).unwrap()
}

#[tokio::test]
async fn a_client_authenticates_with_a_certificate_or_a_token() {
    let server = ApiServer::start();
    server.apply(service("web", 80));
    let by_certificate = client(&server.kubeconfig()).await;
    let by_token = client(&server.kubeconfig_with_token()).await;
    assert_eq!(services(&by_certificate).await.unwrap(), 1);
    assert_eq!(services(&by_token).await.unwrap(), 1);
}

#[tokio::test]
async fn discovery_lists_version_groups_and_resources() {
    let server = ApiServer::start_at((Ipv6Addr::LOCALHOST, 0).into());
    let client = client(&server.kubeconfig()).await;
    let version = client.apiserver_version().await.unwrap();
    assert_eq!(
        (version.major.as_str(), version.minor.as_str()),
        ("1", "36")
    );
    let core = client.list_core_api_resources("v1").await.unwrap();
    assert!(
        core.resources
            .iter()
            .any(|resource| resource.kind == "Node" && !resource.namespaced)
    );
    let groups = client.list_api_groups().await.unwrap().groups;
    assert_eq!(groups.len(), 3);
    for group in groups {
        let version = group.versions[0].group_version.clone();
        let resources = client.list_api_group_resources(&version).await.unwrap();
        assert!(!resources.resources.is_empty(), "{version}");
    }
    assert!(client.list_api_group_resources("apps/v1").await.is_err());
}

#[tokio::test]
async fn clients_without_credentials_or_with_an_old_token_are_unauthorized() {
    let server = ApiServer::start();
    let by_token = client(&server.kubeconfig_with_token()).await;
    server.set_token("another");
    let unauthorized = (401, "Unauthorized".to_owned());
    assert_eq!(status_error(services(&by_token).await), unauthorized);
    let kubeconfig = server.kubeconfig_with_token();
    assert!(line(&kubeconfig, "token:").ends_with("another"));
    assert_eq!(services(&client(&kubeconfig).await).await.unwrap(), 0);
    let anonymous = kubeconfig.replace(line(&kubeconfig, "token:"), "    username: nobody");
    assert_eq!(
        status_error(services(&client(&anonymous).await).await),
        unauthorized
    );
}

#[tokio::test]
async fn certificates_of_another_authority_are_rejected_on_both_sides() {
    let (server, other) = (ApiServer::start(), ApiServer::start());
    let (own, foreign) = (server.kubeconfig(), other.kubeconfig());
    let begin = "certificate-authority-data:";
    let mistaken = own.replace(line(&own, begin), line(&foreign, begin));
    let error = services(&client(&mistaken).await).await.unwrap_err();
    let text = format!("{error:?}");
    assert!(
        text.contains("UnknownIssuer") || text.contains("BadSignature"),
        "{text}"
    );
    // The server rejects a client certificate of another authority, too.
    let (own_user, foreign_user) = (line(&own, "client-cert"), line(&foreign, "client-cert"));
    let (own_key, foreign_key) = (line(&own, "client-key"), line(&foreign, "client-key"));
    let stranger = own
        .replace(own_user, foreign_user)
        .replace(own_key, foreign_key);
    assert!(services(&client(&stranger).await).await.is_err());
    assert_eq!(services(&client(&own).await).await.unwrap(), 0);
}

#[tokio::test]
async fn requests_for_a_forbidden_resource_get_403_until_it_is_allowed() {
    let server = ApiServer::start();
    let client = client(&server.kubeconfig()).await;
    server.faults(|faults| faults.forbidden = vec!["services".to_owned()]);
    let forbidden = (403, "Forbidden".to_owned());
    assert_eq!(status_error(services(&client).await), forbidden);
    server.faults(|faults| faults.forbidden.clear());
    assert_eq!(services(&client).await.unwrap(), 0);
}

#[tokio::test]
async fn the_files_of_a_service_account_directory_are_written() {
    let server = ApiServer::start();
    let directory = std::env::temp_dir().join(format!("apiserver-{}", server.address().port()));
    server.write_service_account(&directory).unwrap();
    let read = |name| std::fs::read_to_string(directory.join(name)).unwrap();
    assert_eq!(read("ca.crt"), server.ca_certificate());
    assert_eq!(read("namespace"), "kube-system");
    assert!(server.kubeconfig_with_token().contains(&read("token")));
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_dropped_server_releases_its_port() {
    let server = ApiServer::start();
    let address = server.address();
    drop(server);
    let again = ApiServer::start_at(address);
    assert_eq!(again.address(), address);
}
