//! Configuration files for clients.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;

use data_encoding::BASE64;

use crate::tls::Certificates;

/// Returns a kubeconfig with embedded credentials: the token, or the client
/// certificate if `token` is [`None`].
pub(crate) fn kubeconfig(
    address: SocketAddr,
    certificates: &Certificates,
    token: Option<&str>,
) -> String {
    let authority = BASE64.encode(certificates.ca_certificate.as_bytes());
    let user = token.map_or_else(
        || {
            let certificate = BASE64.encode(certificates.client.as_bytes());
            let key = BASE64.encode(certificates.client_key.as_bytes());
            format!("client-certificate-data: {certificate}\n    client-key-data: {key}")
        },
        |token| format!("token: {token}"),
    );
    format!(
        "\
apiVersion: v1
kind: Config
clusters:
- name: test
  cluster:
    certificate-authority-data: {authority}
    server: https://{address}
users:
- name: kube-proxy
  user:
    {user}
contexts:
- name: test
  context:
    cluster: test
    user: kube-proxy
current-context: test
"
    )
}

/// Writes the files of a pod's service account directory.
///
/// # Errors
///
/// If a file cannot be written.
pub(crate) fn write_service_account(
    directory: &Path,
    certificates: &Certificates,
    token: &str,
) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    fs::write(directory.join("ca.crt"), &certificates.ca_certificate)?;
    fs::write(directory.join("namespace"), "kube-system")?;
    fs::write(directory.join("token"), token)
}
