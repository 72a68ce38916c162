//! Runs the examples and compares their output.
#![allow(clippy::unwrap_used, reason = "a test")]

#[expect(dead_code, reason = "the test does not call `main`")]
#[path = "../examples/rules.rs"]
mod rules;

#[expect(dead_code, reason = "the test does not call `main`")]
#[path = "../examples/tiny-proxy.rs"]
mod tiny_proxy;

mod golden {
    use std::io::{self, Write};
    use std::path::{Path, PathBuf};
    use std::sync::{Arc, Mutex};

    use proxy_core::Mode;

    use super::{rules, tiny_proxy};

    const MANIFESTS: &str = include_str!("../../../examples/kube-proxy/demo/front.yaml");

    /// Returns the path of an expected output.
    fn golden(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/golden")
            .join(name)
    }

    /// A writer whose clones append to one buffer.
    #[derive(Clone, Default)]
    struct Output(Arc<Mutex<Vec<u8>>>);

    impl Write for Output {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Output {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    #[test]
    fn rules_of_a_manifest_are_written_in_any_mode() {
        for mode in [Mode::Nftables, Mode::Iptables, Mode::Ipvs] {
            let output = Output::default();
            rules::run(mode, MANIFESTS, || output.clone()).unwrap();
            testkit::golden::compare(golden(&format!("rules/{mode}.txt")), &output.text());
        }
    }

    #[test]
    fn tiny_proxy_writes_the_rules_of_a_manifest() {
        let output = Output::default();
        tiny_proxy::run(MANIFESTS, || output.clone()).unwrap();
        testkit::golden::compare(golden("tiny-proxy.txt"), &output.text());
    }

    #[test]
    fn tiny_proxy_has_30_lines_of_code() {
        let source = include_str!("../examples/tiny-proxy.rs");
        let is_code = |line: &&str| {
            let line = line.trim_start();
            !line.is_empty() && !line.starts_with("//") && !line.starts_with("use ")
        };
        assert!(source.lines().filter(is_code).count() <= 30);
    }

    #[test]
    fn tiny_proxy_rejects_invalid_manifests() {
        for (manifest, expected) in [
            ("kind: Service\nspec: [", "2:7: unclosed bracket"),
            (
                "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {clusterIP: 10.96.0, ports: [{port: 80}]}",
                "4:19: spec.clusterIP: not an IP address",
            ),
        ] {
            let failed = tiny_proxy::run(manifest, Output::default);
            let message = failed.unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
    }
}
