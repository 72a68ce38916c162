//! Which modules the guest loads, and in which order.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};

/// Folders of modules, and modules, without what kernels call the files' ends.
const WANTED: [&str; 8] = [
    // What searches texts is no dependency of those who ask for it by name.
    "kernel/lib/ts_bm",
    "kernel/lib/ts_kmp",
    "kernel/drivers/net/dummy",
    "kernel/drivers/net/veth",
    "kernel/net/ipv4/netfilter/",
    "kernel/net/ipv6/netfilter/",
    "kernel/net/netfilter/",
    "kernel/net/sctp/sctp",
];

/// Returns the files of all modules wanted and of those that they need, each
/// after those that it needs.
pub(super) fn in_order(dependencies: &str) -> Result<Vec<&str>> {
    let needs = parse(dependencies)?;
    let mut done = BTreeSet::new();
    let mut order = Vec::new();
    for wanted in WANTED {
        let mut found = needs
            .keys()
            .filter(|file| match wanted.ends_with('/') {
                true => file.starts_with(wanted),
                false => file.strip_suffix(".ko") == Some(wanted),
            })
            .peekable();
        ensure!(found.peek().is_some(), "there is no module {wanted}");
        for file in found {
            add(file, &needs, &mut done, &mut order)?;
        }
    }
    Ok(order)
}

/// Reads what `depmod` writes: `FILE: FILE …` a line.
fn parse(dependencies: &str) -> Result<BTreeMap<&str, Vec<&str>>> {
    dependencies
        .lines()
        .map(|line| {
            let (file, needs) = line
                .split_once(':')
                .with_context(|| format!("{line:?} in modules.dep"))?;
            Ok((file, needs.split_whitespace().collect()))
        })
        .collect()
}

fn add<'a>(
    file: &'a str,
    needs: &BTreeMap<&'a str, Vec<&'a str>>,
    done: &mut BTreeSet<&'a str>,
    order: &mut Vec<&'a str>,
) -> Result<()> {
    if !done.insert(file) {
        return Ok(());
    }
    let needed = needs
        .get(file)
        .with_context(|| format!("{file} is needed, and no module"))?;
    for file in needed {
        add(file, needs, done, order)?;
    }
    order.push(file);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEPENDENCIES: &str = "\
        kernel/lib/libcrc32c.ko:\n\
        kernel/lib/ts_bm.ko:\n\
        kernel/lib/ts_kmp.ko:\n\
        kernel/drivers/net/dummy.ko:\n\
        kernel/drivers/net/veth.ko:\n\
        kernel/drivers/net/vethereal.ko:\n\
        kernel/net/ipv4/netfilter/ipt_ah.ko: kernel/net/netfilter/x_tables.ko\n\
        kernel/net/ipv6/netfilter/ip6t_ah.ko: kernel/net/netfilter/x_tables.ko\n\
        kernel/net/netfilter/a_first.ko: kernel/net/netfilter/z_last.ko kernel/lib/libcrc32c.ko\n\
        kernel/net/netfilter/x_tables.ko:\n\
        kernel/net/netfilter/z_last.ko: kernel/lib/libcrc32c.ko\n";

    #[test]
    fn a_module_comes_once_and_after_what_it_needs() {
        let text = format!("{DEPENDENCIES}kernel/net/sctp/sctp.ko: kernel/lib/libcrc32c.ko\n");
        let names: Vec<&str> = in_order(&text)
            .unwrap()
            .into_iter()
            .filter_map(|file| file.rsplit('/').next())
            .collect();
        let expected = [
            "ts_bm.ko",
            "ts_kmp.ko",
            "dummy.ko",
            "veth.ko",
            "x_tables.ko",
            "ipt_ah.ko",
            "ip6t_ah.ko",
            "libcrc32c.ko",
            "z_last.ko",
            "a_first.ko",
            "sctp.ko",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn a_kernel_that_lacks_a_module_is_an_error() {
        let error = in_order(DEPENDENCIES).unwrap_err().to_string();
        assert_eq!(error, "there is no module kernel/net/sctp/sctp");
        let text = format!("{DEPENDENCIES}kernel/net/sctp/sctp.ko: kernel/lib/absent.ko\n");
        assert!(in_order(&text).unwrap_err().to_string().contains("absent"));
        assert!(in_order("no colon").is_err());
    }
}
