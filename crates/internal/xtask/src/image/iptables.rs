//! Programs of Debian's package `iptables`, with their plugins and libraries.

use std::path::Path;
use std::process::{Command, Stdio};
use std::{fs, str};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

use super::files::Files;
use crate::process::display;

/// Variant of iptables that the links `iptables-save` and `iptables-restore` select.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Variant {
    /// nf_tables.
    Nft,
    /// x_tables.
    Legacy,
}

/// Prefixes of the plugins for IPv4 and IPv6; others are for ARP and bridges.
const PLUGINS: [&str; 3] = ["libxt_", "libipt_", "libip6t_"];

impl Variant {
    fn name(self) -> &'static str {
        match self {
            Self::Nft => "nft",
            Self::Legacy => "legacy",
        }
    }

    /// Returns the file name of the program, which reads its function from the name of
    /// the link.
    fn program(self) -> String {
        format!("xtables-{}-multi", self.name())
    }
}

/// Returns both variants of the installed iptables, with links for the selected one.
///
/// # Errors
///
/// If the system has no `dpkg`, or the package is not installed.
pub(super) fn files(selected: Variant) -> Result<Files> {
    let mut files = Files::default();
    let listed = output(Command::new("dpkg").args(["--listfiles", "iptables"]))?;
    let objects: Vec<&str> = listed.lines().filter(|path| is_object(path)).collect();
    for path in &objects {
        add(&mut files, path)?;
    }
    for path in libraries(&output(Command::new("ldd").args(&objects))?) {
        add(&mut files, path)?;
    }
    for (name, target) in links(selected) {
        files.add_link(&format!("usr/sbin/{name}"), &target);
    }
    Ok(files)
}

/// Returns whether a file of the package is one of the two programs or a plugin.
fn is_object(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let programs = [Variant::Nft, Variant::Legacy].map(Variant::program);
    programs.iter().any(|program| program == name)
        || (name.ends_with(".so") && PLUGINS.iter().any(|prefix| name.starts_with(prefix)))
}

/// Returns names and targets of the links to the programs.
fn links(selected: Variant) -> Vec<(String, String)> {
    let mut links = Vec::new();
    for family in ["iptables", "ip6tables"] {
        for suffix in ["", "-save", "-restore"] {
            for variant in [Variant::Nft, Variant::Legacy] {
                let name = format!("{family}-{}{suffix}", variant.name());
                links.push((name, variant.program()));
            }
            links.push((format!("{family}{suffix}"), selected.program()));
        }
    }
    links
}

/// Returns the paths of libraries and of the dynamic linker in the output of ldd.
fn libraries(text: &str) -> impl Iterator<Item = &str> {
    // Lines are `NAME => PATH (ADDRESS)` or `PATH (ADDRESS)`, after a line `PATH:` for
    // each argument.
    text.lines().filter_map(|line| {
        let (object, _) = line.trim().rsplit_once(" (")?;
        let path = object.rsplit_once("=> ").map_or(object, |(_, path)| path);
        path.starts_with('/').then_some(path)
    })
}

/// Adds a file of this system as a program. Follows links, so that the path is a file.
fn add(files: &mut Files, path: &str) -> Result<()> {
    let content = fs::read(Path::new(path)).with_context(|| path.to_owned())?;
    files.add_program(path.trim_start_matches('/'), content, 0);
    Ok(())
}

fn output(command: &mut Command) -> Result<String> {
    let text = display(command);
    let command = command.env("LC_ALL", "C").stdin(Stdio::null());
    let output = command.output().with_context(|| text.clone())?;
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr);
        bail!("{text}: {}", reason.trim());
    }
    Ok(str::from_utf8(&output.stdout)?.to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn libraries_and_the_dynamic_linker_are_read_from_ldd() {
        let text = "/usr/sbin/a:\n\tlinux-vdso.so.1 (0x00007ffe)\n\
            \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f00)\n\
            \t/lib64/ld-linux-x86-64.so.2 (0x00007f01)\n/usr/sbin/b:\n\tstatically linked\n";
        let expected = [
            "/lib/x86_64-linux-gnu/libc.so.6",
            "/lib64/ld-linux-x86-64.so.2",
        ];
        assert_eq!(libraries(text).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn links_select_the_variant_and_name_both() {
        let links: BTreeMap<String, String> = links(Variant::Legacy).into_iter().collect();
        assert_eq!(links.len(), 18);
        assert_eq!(links["ip6tables-restore"], "xtables-legacy-multi");
        assert_eq!(links["iptables-legacy-save"], "xtables-legacy-multi");
        assert_eq!(links["iptables-nft-save"], "xtables-nft-multi");
    }

    #[test]
    fn the_installed_programs_are_added_with_plugins_and_libraries() {
        let mut names = Vec::new();
        let each = |path: &str, content: &[u8]| {
            assert_eq!(&content[..4], b"\x7fELF", "{path}");
            names.push(path.rsplit('/').next().unwrap().to_owned());
            Ok(())
        };
        files(Variant::Nft).unwrap().each(each).unwrap();
        for name in [
            "xtables-nft-multi",
            "libxt_comment.so",
            "libc.so.6",
            "libxtables.so.12",
        ] {
            assert!(names.iter().any(|it| it == name), "{name}: {names:?}");
        }
        assert!(
            !names.iter().any(|name| name.starts_with("libebt_")),
            "{names:?}"
        );
    }
}
