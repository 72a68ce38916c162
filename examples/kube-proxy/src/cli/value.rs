//! Parsers of flag values.

use proxy_core::IptablesBackend;
use vipline_service_model::parse_address;

use crate::config::Vmodule;
use crate::version::Version;

/// Parses a Boolean as Go does.
pub(super) fn switch(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("must be true or false".to_owned()),
    }
}

/// Parses the value of `--version`.
pub(super) fn version(text: &str) -> Result<Version, String> {
    match text {
        "raw" => Ok(Version::Raw),
        _ if text.starts_with('v') => Version::report(text),
        _ => Ok(match switch(text)? {
            true => Version::Print,
            false => Version::Off,
        }),
    }
}

/// Validates an IP address. An empty value is valid.
pub(super) fn ip(text: &str) -> Result<String, String> {
    match text.is_empty() || parse_address(text).is_some() {
        true => Ok(text.to_owned()),
        false => Err("not an IP address".to_owned()),
    }
}

/// Validates an IP address with or without a port. An empty value is valid.
pub(super) fn ip_port(text: &str) -> Result<String, String> {
    if ip(text).is_ok() {
        return Ok(text.to_owned());
    }
    let (address, port) = split_port(text).ok_or("must be an IP address or IP:port")?;
    parse_address(address).ok_or("not an IP address")?;
    match port.parse::<u16>() {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err("the port must be from 0 to 65535".to_owned()),
    }
}

/// Splits `address:port`. An IPv6 address is in brackets.
pub(crate) fn split_port(text: &str) -> Option<(&str, &str)> {
    let (address, port) = text.rsplit_once(':')?;
    match address.strip_prefix('[') {
        Some(address) => Some((address.strip_suffix(']')?, port)),
        None => (!address.contains([':', '[', ']'])).then_some((address, port)),
    }
}

/// Parses `NAME=true` or `NAME=false`. As in upstream, an empty item of a list is `None`:
/// templates write `--feature-gates=` for no gates, and trailing commas.
pub(super) fn gate(text: &str) -> Result<Option<(String, bool)>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let (name, value) = text
        .split_once('=')
        .ok_or("must be NAME=true or NAME=false")?;
    Ok(Some((name.trim().to_owned(), switch(value.trim())?)))
}

/// Parses the value of `--iptables-backend`.
pub(super) fn iptables_backend(text: &str) -> Result<IptablesBackend, String> {
    let mut all = IptablesBackend::ALL.into_iter();
    let found = all.find(|backend| backend.name() == text);
    found.ok_or_else(|| "must be auto, programs or netlink".to_owned())
}

/// Parses `PATTERN=LEVEL`. As in upstream, an empty item of a list is `None`.
pub(super) fn vmodule(text: &str) -> Result<Option<Vmodule>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let (pattern, level) = text.split_once('=').ok_or("must be PATTERN=LEVEL")?;
    match (pattern, level.parse()) {
        ("", _) => Err("the pattern is missing".to_owned()),
        (_, Err(_)) => Err("the level must be a number".to_owned()),
        (pattern, Ok(verbosity)) => Ok(Some(Vmodule {
            file_pattern: pattern.to_owned(),
            verbosity,
        })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_may_have_a_port() {
        for text in [
            "",
            "192.0.2.1",
            "::1",
            "192.0.2.1:80",
            "[::1]:0",
            "010.0.0.1:1",
        ] {
            assert_eq!(ip_port(text).as_deref(), Ok(text));
        }
        for text in [
            "a",
            ":80",
            "1.2.3.4:",
            "1.2.3.4:http",
            "1.2.3.4:65536",
            "[1.2.3.4:5",
            "::g",
        ] {
            assert!(ip_port(text).is_err(), "{text}");
        }
    }
}
