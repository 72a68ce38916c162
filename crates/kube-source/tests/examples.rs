//! Runs the examples and compares their output.
#![allow(clippy::unwrap_used, reason = "a test")]

#[expect(dead_code, reason = "the test does not call `main`")]
#[path = "../examples/tiny-proxy.rs"]
mod tiny_proxy;

mod golden {
    use std::io::{self, Write};
    use std::path::Path;
    use std::sync::{Arc, Mutex};

    use proxy_core::Mode;

    use super::tiny_proxy;

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

    #[test]
    fn tiny_proxy_writes_the_rules_of_a_manifest_in_any_mode() {
        let manifests = include_str!("../../../examples/kube-proxy/demo/front.yaml");
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/tiny-proxy");
        for mode in [Mode::Nftables, Mode::Iptables, Mode::Ipvs] {
            let output = Output::default();
            tiny_proxy::run(mode, manifests, || output.clone()).unwrap();
            let text = String::from_utf8(output.0.lock().unwrap().clone()).unwrap();
            testkit::golden::compare(folder.join(mode.name()).with_extension("txt"), &text);
        }
    }

    #[test]
    fn tiny_proxy_rejects_invalid_manifests() {
        for (manifest, expected) in [
            ("kind: Service\nspec: [", "line 2: unclosed bracket"),
            (
                "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {clusterIP: 10.96.0, ports: [{port: 80}]}",
                "line 4: not an IP address",
            ),
        ] {
            let failed = tiny_proxy::run(Mode::Nftables, manifest, Output::default);
            let message = failed.unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
    }
}
