//! Tests of the manifests in `deploy/ipvs/`, which differ from those of mode iptables
//! only in the mode.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::ConfigMap;

use crate::deploy::{documents, read};

#[test]
fn the_pod_equals_that_of_mode_iptables() {
    let [own, other] = ["ipvs", "iptables"].map(|mode| {
        let name = format!("{mode}/daemonset.yaml");
        read::<DaemonSet>(&documents(&name)[0])
    });
    assert_eq!(own, other);
    let pod = own.spec.template.spec.unwrap();
    let init = &pod.init_containers.unwrap()[0];
    let arguments = init.args.as_ref().unwrap();
    assert!(arguments.contains(&"--init-only".to_owned()));
    let context = init.security_context.as_ref().unwrap();
    assert_eq!(context.privileged, Some(true), "it writes sysctls");
    assert_eq!(pod.host_network, Some(true));
}

#[test]
fn the_configuration_differs_only_in_the_mode() {
    let [own, other] = ["ipvs", "iptables"].map(|mode| -> BTreeMap<String, String> {
        let map: ConfigMap = read(&documents(&format!("{mode}/config.yaml"))[0]);
        map.data.unwrap()
    });
    assert_eq!(own["kubeconfig.conf"], other["kubeconfig.conf"]);
    let config = other["config.conf"].replace("mode: iptables", "mode: ipvs");
    assert_eq!(own["config.conf"], config);
}
