//! The link of mode ipvs, by the program `ip`.

use std::fs;

use anyhow::{Context, Result};

use super::names::LINK;
use super::tool;

/// What removes it, as a shell command.
pub const COMMAND: &str = "ip link delete dev kube-ipvs0";

/// Removes it.
///
/// # Errors
///
/// What the program says.
pub fn remove() -> Result<()> {
    let program = tool::find("ip").context("ip")?;
    tool::run(&program, &["link", "delete", "dev", LINK], "").map(drop)
}

/// Returns the addresses of the link, if it exists.
///
/// # Errors
///
/// It exists, and its addresses cannot be listed.
pub fn look() -> Result<Option<Vec<String>>> {
    let links = fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    let exists = links
        .lines()
        .any(|line| line.trim_start().split(':').next() == Some(LINK));
    if !exists {
        return Ok(None);
    }
    let lack = "link kube-ipvs0: stays, for ip is not installed";
    let program = tool::find("ip").context(lack)?;
    let listed = tool::run(&program, &["-oneline", "address", "show", "dev", LINK], "")?;
    Ok(Some(addresses(&listed)))
}

/// Reads the addresses of what `ip -oneline address` says.
fn addresses(listed: &str) -> Vec<String> {
    let read = |line: &str| {
        let mut words = line.split_whitespace();
        words.find(|word| matches!(*word, "inet" | "inet6"))?;
        words.next()?.split('/').next().map(str::to_owned)
    };
    listed.lines().filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_addresses_are_read() {
        let listed = "5: kube-ipvs0    inet 10.96.0.20/32 scope global kube-ipvs0\\  valid_lft\n\
                      5: kube-ipvs0    inet6 fd00:96::1/128 scope global \\  valid_lft\n";
        assert_eq!(addresses(listed), ["10.96.0.20", "fd00:96::1"]);
        assert!(COMMAND.ends_with(LINK));
    }
}
