//! Choice of a proxy for the connection to the API server, by the rules of Go's
//! `net/http`.

use std::net::IpAddr;

use hyper::Uri;
use ipnet::IpNet;
use vipline_service_model::parse_network;

/// The variables of the environment that name proxies.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct ProxyEnvironment {
    http: String,
    https: String,
    no_proxy: String,
}

/// An environment variable whose value is not a proxy URL.
///
/// The value is not included, because it may contain a password.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct InvalidProxy {
    /// The name of the variable in upper case.
    pub(crate) variable: &'static str,
}

/// An entry of `NO_PROXY`.
enum Exception<'a> {
    Everything,
    Network(IpNet),
    Address(IpAddr, Option<&'a str>),
    /// A domain with a leading dot, and whether the domain itself counts.
    Domain {
        suffix: String,
        includes_itself: bool,
        port: Option<&'a str>,
    },
}

impl ProxyEnvironment {
    /// Reads the variables. Upper case takes precedence over lower case.
    ///
    /// `HTTP_PROXY` has no effect if `REQUEST_METHOD` is set: in a CGI program it is
    /// a header of the request.
    pub(crate) fn read(variable: impl Fn(&str) -> Option<String>) -> Self {
        let any = |upper: &str| {
            let names = [upper.to_owned(), upper.to_lowercase()];
            let mut values = names.iter().filter_map(|name| variable(name));
            values.find(|value| !value.is_empty()).unwrap_or_default()
        };
        let is_cgi = variable("REQUEST_METHOD").is_some_and(|value| !value.is_empty());
        Self {
            http: match is_cgi {
                true => String::new(),
                false => any("HTTP_PROXY"),
            },
            https: any("HTTPS_PROXY"),
            no_proxy: any("NO_PROXY"),
        }
    }

    /// Returns the proxy for a server; `None` for a direct connection.
    ///
    /// # Errors
    ///
    /// [`InvalidProxy`] if the variable for the scheme of the server is not a proxy URL.
    pub(crate) fn proxy(&self, server: &Uri) -> Result<Option<Uri>, InvalidProxy> {
        let (variable, value) = match server.scheme_str() {
            Some("https") => ("HTTPS_PROXY", &self.https),
            _ => ("HTTP_PROXY", &self.http),
        };
        if value.is_empty() || !self.applies_to(server) {
            return Ok(None);
        }
        let proxy = parse_proxy(value).ok_or(InvalidProxy { variable })?;
        Ok(Some(proxy))
    }

    /// Returns whether connections to a server use a proxy.
    fn applies_to(&self, server: &Uri) -> bool {
        let host = server.host().unwrap_or_default().to_lowercase();
        let host = unbracketed(&host);
        let default_port = match server.scheme_str() {
            Some("https") => "443",
            _ => "80",
        };
        let port = server.port();
        let port = port.as_ref().map_or(default_port, |port| port.as_str());
        let address: Option<IpAddr> = host.parse().ok();
        if host == "localhost" || address.is_some_and(is_loopback) {
            return false;
        }
        let entries = self.no_proxy.to_lowercase();
        let mut exceptions = entries.split(',').filter_map(|entry| parse(entry.trim()));
        !exceptions.any(|exception| exception.matches(host, address, port))
    }
}

/// Parses a proxy URL with scheme `http`, `https`, `socks5` or `socks5h`. The default
/// scheme is `http`.
///
/// Returns `None` if the text is not a proxy URL.
pub(crate) fn parse_proxy(text: &str) -> Option<Uri> {
    let has_scheme = text.contains("://");
    let url = match has_scheme {
        true => text.to_owned(),
        false => format!("http://{text}"),
    };
    let url: Uri = url.parse().ok()?;
    let is_known = matches!(
        url.scheme_str(),
        Some("http" | "https" | "socks5" | "socks5h")
    );
    (is_known && url.host().is_some_and(|host| !host.is_empty())).then_some(url)
}

/// Reads an entry of `NO_PROXY`; `None` if it has no effect.
fn parse(entry: &str) -> Option<Exception<'_>> {
    if entry == "*" {
        return Some(Exception::Everything);
    }
    if let Some(network) = parse_network(entry) {
        return Some(Exception::Network(network));
    }
    let (host, port) = match split_port(entry) {
        Some((host, port)) => (host, Some(port).filter(|port| !port.is_empty())),
        None => (entry, None),
    };
    if let Ok(address) = unbracketed(host).parse() {
        return Some(Exception::Address(address, port));
    }
    let host = match host.strip_prefix("*.") {
        Some(domain) => format!(".{domain}"),
        None => host.to_owned(),
    };
    if host.is_empty() {
        return None;
    }
    let includes_itself = !host.starts_with('.');
    let suffix = match includes_itself {
        true => format!(".{host}"),
        false => host,
    };
    Some(Exception::Domain {
        suffix,
        includes_itself,
        port,
    })
}

impl Exception<'_> {
    fn matches(&self, host: &str, address: Option<IpAddr>, port: &str) -> bool {
        let has_port = |wanted: &Option<&str>| wanted.is_none_or(|wanted| wanted == port);
        match self {
            Self::Everything => true,
            Self::Network(network) => {
                address.is_some_and(|address| network.contains(&address.to_canonical()))
            }
            Self::Address(wanted, wanted_port) => {
                address.is_some_and(|address| address.to_canonical() == wanted.to_canonical())
                    && has_port(wanted_port)
            }
            Self::Domain {
                suffix,
                includes_itself,
                port,
            } => {
                let is_itself = *includes_itself && Some(host) == suffix.strip_prefix('.');
                address.is_none() && (host.ends_with(suffix) || is_itself) && has_port(port)
            }
        }
    }
}

/// Splits `host:port` and `[host]:port`; `None` without a port.
fn split_port(text: &str) -> Option<(&str, &str)> {
    let (host, port) = text.rsplit_once(':')?;
    let is_bracketed = host.starts_with('[') && host.ends_with(']');
    (is_bracketed || !host.contains(':')).then_some((host, port))
}

fn unbracketed(host: &str) -> &str {
    let inner = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    inner.unwrap_or(host)
}

fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(variables: &[(&str, &str)]) -> ProxyEnvironment {
        ProxyEnvironment::read(|name| {
            let found = variables.iter().find(|(other, _)| *other == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    /// Returns whether a server is reached through a proxy.
    fn is_proxied(no_proxy: &str, server: &str) -> bool {
        let environment = environment(&[
            ("HTTPS_PROXY", "http://proxy:3128"),
            ("HTTP_PROXY", "http://proxy:3128"),
            ("NO_PROXY", no_proxy),
        ]);
        environment
            .proxy(&server.parse().unwrap())
            .unwrap()
            .is_some()
    }

    #[test]
    fn exceptions_are_those_of_go() {
        for (no_proxy, server, expected) in [
            ("", "https://10.0.0.1:6443", true),
            ("", "https://localhost:6443", false),
            ("", "https://127.0.0.1:6443", false),
            ("", "https://[::1]:6443", false),
            ("", "https://[::ffff:127.0.0.1]:6443", false),
            ("*", "https://10.0.0.1", false),
            ("a, *", "https://10.0.0.1", false),
            ("10.0.0.0/8", "https://10.1.2.3:6443", false),
            ("10.0.0.0/8", "https://11.1.2.3:6443", true),
            ("fd00::/8", "https://[fd00::1]:6443", false),
            ("10.0.0.1", "https://10.0.0.1:6443", false),
            ("10.0.0.1:6443", "https://10.0.0.1:6443", false),
            ("10.0.0.1:443", "https://10.0.0.1:6443", true),
            ("10.0.0.1:443", "https://10.0.0.1", false),
            ("10.0.0.1:80", "http://10.0.0.1", false),
            ("[fd00::1]:6443", "https://[fd00::1]:6443", false),
            ("fd00::1", "https://[fd00::1]:6443", false),
            ("example.com", "https://example.com", false),
            ("example.com", "https://api.example.com", false),
            ("example.com", "https://badexample.com", true),
            (".example.com", "https://api.example.com", false),
            (".example.com", "https://example.com", true),
            ("*.example.com", "https://api.example.com", false),
            ("*.example.com", "https://example.com", true),
            ("EXAMPLE.com", "https://API.Example.COM", false),
            ("example.com:6443", "https://api.example.com:6443", false),
            ("example.com:6443", "https://api.example.com", true),
            (" ,, .svc , 10.96.0.0/12,", "https://10.96.0.1", false),
            ("10.0.0.1/33,:80", "https://10.0.0.1", true),
            (".0.0.1,0.0.1", "https://10.0.0.1", true),
            ("example.com.", "https://example.com", true),
            ("::ffff:10.0.0.1", "https://10.0.0.1", false),
            ("10.0.0.0/8", "https://[::ffff:10.0.0.1]", false),
            ("010.000.0.0/8", "https://10.0.0.1", false),
        ] {
            assert_eq!(
                is_proxied(no_proxy, server),
                expected,
                "{no_proxy:?} {server}"
            );
        }
    }

    #[test]
    fn the_scheme_of_the_server_chooses_the_variable() {
        let environment = environment(&[("https_proxy", "a:1"), ("HTTP_PROXY", "socks5://b:2")]);
        let proxy = |server: &str| {
            let proxy = environment.proxy(&server.parse().unwrap()).unwrap();
            proxy.map(|proxy| proxy.to_string())
        };
        assert_eq!(proxy("https://10.0.0.1").as_deref(), Some("http://a:1/"));
        assert_eq!(proxy("http://10.0.0.1").as_deref(), Some("socks5://b:2/"));
    }

    #[test]
    fn a_cgi_program_ignores_the_proxy_for_http() {
        for (method, expected) in [("", "http://b/"), ("GET", "")] {
            let variables = [("HTTP_PROXY", "b"), ("REQUEST_METHOD", method)];
            let proxy = environment(&variables).proxy(&"http://10.0.0.1".parse().unwrap());
            let proxy = proxy.unwrap().map(|proxy| proxy.to_string());
            assert_eq!(proxy.unwrap_or_default(), expected, "{method:?}");
        }
    }

    #[test]
    fn upper_case_precedes_lower_case_unless_it_is_empty() {
        for (upper, expected) in [("up", "http://up/"), ("", "http://low/")] {
            let environment = environment(&[("HTTPS_PROXY", upper), ("https_proxy", "low")]);
            let proxy = environment.proxy(&"https://10.0.0.1".parse().unwrap());
            assert_eq!(proxy.unwrap().unwrap().to_string(), expected);
        }
    }

    #[test]
    fn a_variable_that_names_no_proxy_is_an_error_without_its_value() {
        for value in ["ftp://user:secret@proxy", "http://", "a b"] {
            let environment = environment(&[("HTTPS_PROXY", value)]);
            let error = environment.proxy(&"https://10.0.0.1".parse().unwrap());
            let variable = "HTTPS_PROXY";
            assert_eq!(error, Err(InvalidProxy { variable }), "{value}");
        }
    }
}
