//! A SOCKS5 connector (RFC 1928) with the authentication methods of Go's
//! `net/http`.

use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tower::Service;

const VERSION: u8 = 5;

// Authentication methods.
const NO_AUTHENTICATION: u8 = 0;
const PASSWORD: u8 = 2;
const NONE_ACCEPTABLE: u8 = 0xff;

/// Version of the username/password subnegotiation (RFC 1929).
const PASSWORD_VERSION: u8 = 1;

const CONNECT: u8 = 1;

// Address types.
const IPV4: u8 = 1;
const DOMAIN: u8 = 3;
const IPV6: u8 = 4;

/// Opens connections through a SOCKS5 proxy.
///
/// The proxy resolves host names, also with the scheme `socks5`.
#[derive(Clone, Debug)]
pub(crate) struct SocksConnector {
    proxy: Uri,
    credentials: Option<(String, String)>,
    direct: HttpConnector,
}

impl SocksConnector {
    /// Creates a connector. `proxy` must have a port.
    ///
    /// Credentials are sent only if the proxy requests them.
    pub(crate) fn new(
        proxy: Uri,
        credentials: Option<(String, String)>,
        direct: HttpConnector,
    ) -> Self {
        Self {
            proxy,
            credentials,
            direct,
        }
    }
}

impl Service<Uri> for SocksConnector {
    type Response = TokioIo<TcpStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.direct.poll_ready(context).map_err(io::Error::other)
    }

    fn call(&mut self, target: Uri) -> Self::Future {
        let connecting = self.direct.call(self.proxy.clone());
        let credentials = self.credentials.clone();
        Box::pin(async move {
            let stream = connecting.await.map_err(io::Error::other)?;
            let mut stream = stream.into_inner();
            connect(&mut stream, &target, credentials.as_ref())
                .await
                .map_err(|error| io::Error::new(error.kind(), format!("SOCKS5 proxy: {error}")))?;
            Ok(TokioIo::new(stream))
        })
    }
}

/// Negotiates a connection to `target` with the proxy.
async fn connect<S>(
    stream: &mut S,
    target: &Uri,
    credentials: Option<&(String, String)>,
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    match credentials {
        Some(_) => {
            let greeting = [VERSION, 2, NO_AUTHENTICATION, PASSWORD];
            stream.write_all(&greeting).await?;
        }
        None => stream.write_all(&[VERSION, 1, NO_AUTHENTICATION]).await?,
    }
    match (read(stream).await?, credentials) {
        ([VERSION, NO_AUTHENTICATION], _) => (),
        ([VERSION, PASSWORD], Some((user, password))) => {
            authenticate(stream, user, password).await?;
        }
        ([VERSION, NONE_ACCEPTABLE], Some(_)) => {
            return Err(denied("it accepts no user name and password"));
        }
        ([VERSION, NONE_ACCEPTABLE], None) => return Err(denied("it requires credentials")),
        _ => return Err(malformed()),
    }
    stream.write_all(&request(target)?).await?;
    let [version, status, _, kind] = read(stream).await?;
    if version != VERSION {
        return Err(malformed());
    }
    if status != 0 {
        return Err(io::Error::other(reason(status)));
    }
    // Bound address of the proxy, which is ignored.
    let length = match kind {
        IPV4 => 4,
        IPV6 => 16,
        DOMAIN => {
            let [length] = read(stream).await?;
            usize::from(length)
        }
        _ => return Err(malformed()),
    };
    let mut address = vec![0; length + 2];
    stream.read_exact(&mut address).await?;
    Ok(())
}

async fn authenticate<S>(stream: &mut S, user: &str, password: &str) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut message = vec![PASSWORD_VERSION];
    push(&mut message, user)?;
    push(&mut message, password)?;
    stream.write_all(&message).await?;
    match read(stream).await? {
        [PASSWORD_VERSION, 0] => Ok(()),
        [PASSWORD_VERSION, _] => Err(denied("it rejects the credentials")),
        _ => Err(malformed()),
    }
}

/// Encodes a CONNECT request.
fn request(target: &Uri) -> io::Result<Vec<u8>> {
    let host = target.host().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let default_port = match target.scheme_str() {
        Some("http") => 80,
        _ => 443,
    };
    let mut message = vec![VERSION, CONNECT, 0];
    match host.parse() {
        Ok(IpAddr::V4(address)) => {
            message.push(IPV4);
            message.extend(address.octets());
        }
        Ok(IpAddr::V6(address)) => {
            message.push(IPV6);
            message.extend(address.octets());
        }
        Err(_) => {
            message.push(DOMAIN);
            push(&mut message, host)?;
        }
    }
    message.extend(target.port_u16().unwrap_or(default_port).to_be_bytes());
    Ok(message)
}

/// Appends the length of a text in one byte, then the text.
fn push(message: &mut Vec<u8>, text: &str) -> io::Result<()> {
    let length = u8::try_from(text.len()).map_err(|_| {
        let reason = "host, user name and password have at most 255 bytes each";
        io::Error::new(ErrorKind::InvalidInput, reason)
    })?;
    message.push(length);
    message.extend(text.bytes());
    Ok(())
}

async fn read<const LENGTH: usize>(
    stream: &mut (impl AsyncRead + Unpin),
) -> io::Result<[u8; LENGTH]> {
    let mut bytes = [0; LENGTH];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}

fn denied(reason: &str) -> io::Error {
    io::Error::new(ErrorKind::PermissionDenied, reason)
}

fn malformed() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "the reply is not SOCKS5")
}

/// Returns the message of a reply code.
fn reason(status: u8) -> String {
    match status {
        1 => "general failure".into(),
        2 => "connection not allowed by ruleset".into(),
        3 => "network unreachable".into(),
        4 => "host unreachable".into(),
        5 => "connection refused".into(),
        6 => "TTL expired".into(),
        7 => "command not supported".into(),
        8 => "address type not supported".into(),
        other => format!("reply code {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends `replies` to a client and returns its requests.
    fn exchange(
        target: &str,
        credentials: Option<(&str, &str)>,
        replies: &[u8],
    ) -> (io::Result<()>, Vec<u8>) {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.build().unwrap();
        runtime.block_on(async {
            let (mut client, mut proxy) = tokio::io::duplex(4096);
            proxy.write_all(replies).await.unwrap();
            proxy.shutdown().await.unwrap();
            let (user, password) = credentials.unwrap_or_default();
            let credentials = credentials.map(|_| (user.to_owned(), password.to_owned()));
            let target = target.parse().unwrap();
            let result = connect(&mut client, &target, credentials.as_ref()).await;
            drop(client);
            let mut sent = Vec::new();
            proxy.read_to_end(&mut sent).await.unwrap();
            (result, sent)
        })
    }

    const DONE: [u8; 10] = [5, 0, 0, 1, 0, 0, 0, 0, 0, 0];

    #[test]
    fn targets_are_addresses_or_names() {
        for (target, expected) in [
            (
                "https://10.0.0.1:6443",
                &[5, 1, 0, 1, 10, 0, 0, 1, 25, 43][..],
            ),
            ("https://a.b", &[5, 1, 0, 3, 3, b'a', b'.', b'b', 1, 187]),
            ("http://a", &[5, 1, 0, 3, 1, b'a', 0, 80]),
            (
                "https://[fd00::1]:1",
                &[
                    5, 1, 0, 4, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1,
                ],
            ),
        ] {
            let replies = [&[5, 0][..], &DONE].concat();
            let (result, sent) = exchange(target, None, &replies);
            result.unwrap();
            assert_eq!(sent, [&[5, 1, 0], expected].concat(), "{target}");
        }
    }

    #[test]
    fn credentials_are_sent_if_the_proxy_asks_for_them() {
        let credentials = Some(("me", "pw"));
        let connect = [5, 1, 0, 3, 1, b'a', 1, 187];
        let authentication = [1, 2, b'm', b'e', 2, b'p', b'w'];
        for (replies, between) in [(&[5, 0][..], &[][..]), (&[5, 2, 1, 0], &authentication)] {
            let replies = [replies, &DONE].concat();
            let (result, sent) = exchange("https://a", credentials, &replies);
            result.unwrap();
            assert_eq!(sent, [&[5, 2, 0, 2], between, &connect].concat());
        }
    }

    #[test]
    fn the_local_address_in_a_reply_is_consumed() {
        let name = [5, 0, 0, 3, 2, b'a', b'b', 0, 1];
        let ipv6 = [&[5, 0, 0, 4][..], &[0; 18]].concat();
        for reply in [&DONE[..], &name, &ipv6] {
            let replies = [&[5, 0][..], reply].concat();
            exchange("https://a", None, &replies).0.unwrap();
            let cut = &replies[..replies.len() - 1];
            let error = exchange("https://a", None, cut).0.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
        }
    }

    #[test]
    fn failures_name_their_reason() {
        let long = "x".repeat(256);
        for (replies, credentials, expected) in [
            (&[5, 0xff][..], None, "it requires credentials"),
            (&[5, 0xff], Some("me"), "it accepts no user name"),
            (&[5, 2], None, "not SOCKS5"),
            (b"HTTP/1.1 400", None, "not SOCKS5"),
            (&[5, 2, 1, 1], Some("me"), "it rejects the credentials"),
            (&[5, 2], Some(&*long), "at most 255 bytes"),
            (&[5, 0, 5, 5, 0, 1], None, "connection refused"),
            (&[5, 0, 5, 9, 0, 1], None, "reply code 9"),
            (&[5, 0, 5, 0, 0, 9], None, "not SOCKS5"),
        ] {
            let credentials = credentials.map(|user| (user, ""));
            let error = exchange("https://a", credentials, replies).0.unwrap_err();
            assert!(error.to_string().contains(expected), "{error}: {expected}");
        }
    }
}
