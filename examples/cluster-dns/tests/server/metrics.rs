//! All metrics of the process.

use std::path::Path;

use crate::scripted::{FIRST, address, send};
use crate::upstream::{Server, forwarding};

/// Returns names, types, help and labels. Each value is 0, and the version is absent.
fn shape(page: &str) -> String {
    let (_, body) = page.split_once("\r\n\r\n").expect("a response");
    let version = format!("version=\"{}\"", env!("CARGO_PKG_VERSION"));
    let lines = body.lines().map(|line| match line.starts_with('#') {
        true => format!("{line}\n"),
        false => {
            let (series, _) = line.rsplit_once(' ').expect("a value");
            format!("{} 0\n", series.replace(&version, "version=\"\""))
        }
    });
    lines.collect()
}

#[test]
fn the_page_equals_the_golden_file() {
    let stage = forwarding("--forward 127.0.0.11", "");
    let _server = Server::start(&stage, FIRST, |seen| send(&address(seen, 1, 60)));
    for question in [
        "web.shop.svc.cluster.local",
        "+tcp +dnssec AAAA nothing.shop.svc.cluster.local",
        "@::1 www.example.com",
        "www.example.com",
        "CH TXT version.bind",
    ] {
        assert!(stage.dig(question).contains("status: "), "{question}");
    }
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let page = stage.page("/metrics").unwrap();
    testkit::golden::compare(tests.join("golden/metrics.txt"), &shape(&page));
}
