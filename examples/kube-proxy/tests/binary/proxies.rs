//! Proxies for the API that Go's `net/http`, and thus upstream kube-proxy, supports:
//! HTTP, HTTPS, and SOCKS5.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::cluster::Cluster;
use crate::connection::{ADDRESS, ConnectProxy, cluster, cluster_at, start};

/// A name of the API server that only a proxy resolves.
const NAME: &str = "kubernetes.default.svc";

const VERSION: u8 = 5;
const NO_AUTHENTICATION: u8 = 0;
const PASSWORD: u8 = 2;
const NONE_ACCEPTABLE: u8 = 0xff;

/// A SOCKS5 proxy (RFC 1928, RFC 1929) that accepts one method of authentication.
struct SocksProxy {
    address: SocketAddr,
    /// Requested targets, each with a prefix `USER:PASSWORD@` if the client sent
    /// credentials.
    requests: Arc<Mutex<Vec<String>>>,
}

impl SocksProxy {
    fn start(cluster: &Cluster, method: u8) -> Self {
        let requests = Arc::new(Mutex::new(Vec::new()));
        let server = cluster.server.address();
        let listener = cluster.netns.run(|| TcpListener::bind((server.ip(), 0)));
        let listener = listener.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::clone(&requests);
        let accept = move || {
            // The thread ends with the process of the test.
            thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let seen = Arc::clone(&seen);
                    thread::spawn(move || serve(stream, method, server, &seen));
                }
            })
        };
        drop(cluster.netns.run(accept));
        Self { address, requests }
    }

    /// Returns the requests since the last call, without consecutive duplicates.
    fn take(&self) -> Vec<String> {
        let mut requests = std::mem::take(&mut *self.requests.lock().unwrap());
        requests.dedup();
        requests
    }
}

/// Handles one client connection. [`NAME`] resolves to the host of `server`.
fn serve(
    mut client: TcpStream,
    method: u8,
    server: SocketAddr,
    requests: &Mutex<Vec<String>>,
) -> io::Result<()> {
    let [version, count] = read(&mut client)?;
    assert_eq!(version, VERSION);
    let offered = read_bytes(&mut client, count)?;
    if !offered.contains(&method) {
        return client.write_all(&[VERSION, NONE_ACCEPTABLE]);
    }
    client.write_all(&[VERSION, method])?;
    let mut request = String::new();
    if method == PASSWORD {
        let [_, length] = read(&mut client)?;
        let user = read_bytes(&mut client, length)?;
        let [length] = read(&mut client)?;
        let password = read_bytes(&mut client, length)?;
        client.write_all(&[1, 0])?;
        let text = |bytes| String::from_utf8(bytes).unwrap();
        request = format!("{}:{}@", text(user), text(password));
    }
    let [_, _connect, _, kind] = read(&mut client)?;
    let host = match kind {
        1 => IpAddr::from(Ipv4Addr::from(read::<4>(&mut client)?)).to_string(),
        4 => IpAddr::from(Ipv6Addr::from(read::<16>(&mut client)?)).to_string(),
        _ => {
            let [length] = read(&mut client)?;
            String::from_utf8(read_bytes(&mut client, length)?).unwrap()
        }
    };
    let port = u16::from_be_bytes(read(&mut client)?);
    requests.lock().unwrap().push(format!("{request}{host}"));
    let target = match host.parse() {
        Ok(address) => SocketAddr::new(address, port),
        Err(_) if host == NAME => SocketAddr::new(server.ip(), port),
        Err(_) => return Ok(()),
    };
    let server = TcpStream::connect(target)?;
    client.write_all(&[VERSION, 0, 0, 1, 0, 0, 0, 0, 0, 0])?;
    let (mut from, mut to) = (server.try_clone()?, client.try_clone()?);
    thread::spawn(move || io::copy(&mut from, &mut to));
    io::copy(&mut client, &mut &server)?;
    Ok(())
}

fn read<const LENGTH: usize>(stream: &mut TcpStream) -> io::Result<[u8; LENGTH]> {
    let mut bytes = [0; LENGTH];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn read_bytes(stream: &mut TcpStream, length: u8) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length.into()];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Starts kube-proxy with `HTTPS_PROXY`, waits until it has synced and watches all
/// kinds, and terminates it.
fn sync(cluster: &Cluster, proxy: String) {
    let process = start(cluster, &[("HTTPS_PROXY", proxy)]);
    assert!(process.terminate().unwrap().success());
}

#[test]
fn socks5_proxies_are_used_with_and_without_credentials() {
    let cluster = cluster();
    let host = cluster.server.address().ip().to_string();
    let with_password = format!("user:p@ss@{host}");
    for (scheme, credentials, method, expected) in [
        ("socks5", "", NO_AUTHENTICATION, &host),
        ("socks5h", "", NO_AUTHENTICATION, &host),
        ("socks5", "user:p%40ss@", PASSWORD, &with_password),
        ("socks5h", "user:p%40ss@", PASSWORD, &with_password),
        // A proxy need not ask for the credentials.
        ("socks5", "user:p%40ss@", NO_AUTHENTICATION, &host),
    ] {
        let proxy = SocksProxy::start(&cluster, method);
        sync(
            &cluster,
            format!("{scheme}://{credentials}{}", proxy.address),
        );
        assert_eq!(proxy.take(), [expected.as_str()], "{scheme} {credentials}");
    }
}

#[test]
fn socks5_proxies_resolve_names() {
    let cluster = cluster();
    let address = cluster.server.address().to_string();
    let name = format!("{NAME}:{}", cluster.server.address().port());
    let text = cluster.server.kubeconfig().replace(&address, &name);
    fs::write(cluster.kubeconfig(), text).unwrap();
    let proxy = SocksProxy::start(&cluster, NO_AUTHENTICATION);
    for scheme in ["socks5", "socks5h"] {
        sync(&cluster, format!("{scheme}://{}", proxy.address));
        assert_eq!(proxy.take(), [NAME], "{scheme}");
    }
}

#[test]
fn socks5_proxies_connect_to_ipv6_addresses() {
    let address: IpAddr = "fd00:9::9".parse().unwrap();
    let cluster = cluster_at(address);
    let proxy = SocksProxy::start(&cluster, NO_AUTHENTICATION);
    sync(&cluster, format!("socks5://{}", proxy.address));
    assert_eq!(proxy.take(), [address.to_string()]);
}

#[test]
fn https_proxies_are_used_with_credentials() {
    let cluster = cluster();
    let connect = ConnectProxy::start(&cluster);
    let proxy = cluster
        .netns
        .run(|| cluster.server.terminate_tls(connect.address));
    let proxy = proxy.unwrap();
    sync(&cluster, format!("https://user:p%40ss@{}", proxy.address()));
    let requests = connect.requests();
    assert!(!requests.is_empty());
    let target = cluster.server.address();
    for request in requests {
        let expected =
            format!("CONNECT {target} HTTP/1.1; Proxy-Authorization: Basic dXNlcjpwQHNz");
        assert_eq!(request, expected);
    }
}

#[test]
fn no_proxy_applies_to_all_kinds_of_proxies() {
    let cluster = cluster();
    let port = cluster.server.address().port();
    let host = IpAddr::from(ADDRESS);
    let proxy = SocksProxy::start(&cluster, NO_AUTHENTICATION);
    let other = port ^ 1;
    for (variable, exceptions, is_proxied) in [
        ("NO_PROXY", format!("{host}:{port}"), false),
        ("NO_PROXY", format!("{host}:{other}"), true),
        ("no_proxy", "10.9.0.0/16".to_owned(), false),
        ("NO_PROXY", "10.8.0.0/16, .9.9.9".to_owned(), true),
    ] {
        let url = format!("socks5://{}", proxy.address);
        let environment = [("https_proxy", url), (variable, exceptions.clone())];
        let process = start(&cluster, &environment);
        assert!(process.terminate().unwrap().success());
        assert_eq!(!proxy.take().is_empty(), is_proxied, "{exceptions}");
    }
}
