//! Mode kernelspace: HNS documents, differences, and what does not run on Linux.

use std::fs;

use serde_json::{Value, json};

use crate::stage::{Outcome, Stage, service, slice};

/// Flags of the overlay network.
const OVERLAY: &str = "--network-name vxlan0 --source-vip 10.244.1.200 --enable-dsr";

const OVERLAY_ID: &str = "A0000000-0000-0000-0000-000000000001";
const LOCAL_ID: &str = "B0000000-0000-0000-0000-000000000001";

const NODE: &str = "---\napiVersion: v1\nkind: Node\nmetadata: {name: node-1}\n\
                    status: {addresses: [{type: InternalIP, address: 192.0.2.1}]}\n";

fn stage() -> Stage {
    let web = service("web", "10.96.0.10") + &slice("web", 1, 1) + &slice("web", 2, 1);
    // A slice does not name the node of an endpoint of the pod network here.
    let web = web.replace("[10.244.1.1]", "[10.244.1.1]\n  nodeName: node-1");
    Stage::with(&[("web.yaml", &web), ("node.yaml", NODE)]).in_mode("kernelspace", path())
}

fn path() -> String {
    std::env::var("PATH").unwrap()
}

/// Returns a node with an overlay network, another network, and one container.
fn node() -> Value {
    let schema = json!({"Major": 2, "Minor": 0});
    json!({
        "Version": {"Major": 15, "Minor": 4},
        "HostMac": "00-15-5D-00-00-01",
        "Networks": [{
            "ID": OVERLAY_ID,
            "Name": "vxlan0",
            "Type": "Overlay",
            "Policies": [{
                "Type": "RemoteSubnetRoute",
                "Settings": {
                    "DestinationPrefix": "10.244.2.0/24",
                    "IsolationId": 4096,
                    "ProviderAddress": "192.0.2.2",
                    "DistributedRouterMacAddress": "00-15-5D-00-00-02",
                },
            }],
            "SchemaVersion": schema,
        }, {
            "ID": "A0000000-0000-0000-0000-000000000002",
            "Name": "cbr0",
            "Type": "L2Bridge",
            "SchemaVersion": schema,
        }],
        "Endpoints": [{
            "ID": LOCAL_ID,
            "HostComputeNetwork": OVERLAY_ID,
            "HostComputeNamespace": "C0000000-0000-0000-0000-000000000001",
            "IpConfigurations": [{"IpAddress": "10.244.1.1", "PrefixLength": 24}],
            "SchemaVersion": schema,
        }],
    })
}

/// Runs a command against a state of HNS.
fn run(stage: &Stage, state: &Value, line: &str) -> Outcome {
    let file = stage.folder.path().join("hns.json");
    fs::write(&file, state.to_string()).unwrap();
    stage.run(&format!("{line} --against {}", file.display()))
}

/// Runs a command and returns its document.
fn documents(stage: &Stage, state: &Value, line: &str, code: i32) -> Value {
    let outcome = run(stage, state, line);
    assert_eq!(outcome.code, code, "{outcome:?}");
    serde_json::from_str(&outcome.stdout).unwrap()
}

/// Returns the node after a sync.
fn synced(stage: &Stage) -> Value {
    let mut node = node();
    let planned = documents(stage, &node, &format!("render {OVERLAY}"), 0);
    let local = node["Endpoints"][0].clone();
    node["Endpoints"] = planned["Endpoints"].clone();
    node["Endpoints"].as_array_mut().unwrap().push(local);
    node["LoadBalancers"] = planned["LoadBalancers"].clone();
    node
}

fn number(last: u8) -> String {
    format!("00000000-0000-0000-0000-{last:012}")
}

#[test]
fn manifests_render_to_the_documents_of_an_overlay_network() {
    let schema = json!({"Major": 2, "Minor": 0});
    let remote = |id, address: &str, mac: &str, provider: &str| {
        json!({
            "ID": number(id),
            "HostComputeNetwork": OVERLAY_ID,
            "Policies": [{
                "Type": "ProviderAddress",
                "Settings": {"ProviderAddress": provider},
            }],
            "IpConfigurations": [{"IpAddress": address}],
            "MacAddress": mac,
            "Flags": 1,
            "SchemaVersion": schema,
        })
    };
    let expected = json!({
        "Endpoints": [{
            "ID": number(1),
            "HostComputeNetwork": OVERLAY_ID,
            "IpConfigurations": [{"IpAddress": "10.244.1.200"}],
            "MacAddress": "00-15-5D-00-00-01",
            "SchemaVersion": schema,
        },
            remote(2, "10.96.0.10", "00-15-5D-00-00-01", "192.0.2.1"),
            remote(3, "10.244.2.1", "02-11-0a-f4-02-01", "192.0.2.2"),
        ],
        "LoadBalancers": [{
            "ID": number(4),
            "HostComputeEndpoints": [LOCAL_ID, number(3)],
            "SourceVIP": "10.244.1.200",
            "FrontendVIPs": ["10.96.0.10"],
            "PortMappings": [{"Protocol": 6, "InternalPort": 8080, "ExternalPort": 80}],
            "Flags": 1,
            "SchemaVersion": schema,
        }],
    });
    let stage = stage();
    let found = documents(&stage, &node(), &format!("render {OVERLAY}"), 0);
    assert_eq!(found, expected, "{found:#}");
    assert_eq!(stage.ruleset(), "", "nothing is programmed");
}

#[test]
fn the_difference_names_what_a_sync_creates_modifies_and_deletes() {
    let stage = stage();
    let synced = synced(&stage);
    let diff = format!("diff {OVERLAY}");
    let nothing = run(&stage, &synced, &diff);
    assert_eq!((nothing.code, &*nothing.stdout), (0, ""), "{nothing:?}");

    let new = service("new", "10.96.0.11") + &slice("new", 2, 2);
    stage.write("new.yaml", &new);
    let found = documents(&stage, &synced, &diff, 1);
    // The endpoint 10.244.2.1 exists, and its identifier is not given to a new object.
    let addresses = found["Create"]["Endpoints"].as_array().unwrap().iter();
    let addresses: Vec<_> = addresses
        .map(|it| it["IpConfigurations"][0]["IpAddress"].as_str().unwrap())
        .collect();
    assert_eq!(addresses, ["10.96.0.11", "10.244.2.2"], "{found:#}");
    let load_balancer = &found["Create"]["LoadBalancers"][0];
    assert_eq!(load_balancer["FrontendVIPs"], json!(["10.96.0.11"]));
    assert_eq!(load_balancer["HostComputeEndpoints"][0], number(3));
    assert_eq!(found.as_object().unwrap().len(), 1, "{found:#}");

    stage.write("new.yaml", "");
    stage.write(
        "web.yaml",
        &(service("web", "10.96.0.10") + &slice("web", 1, 1)),
    );
    let found = documents(&stage, &synced, &diff, 1);
    let modified = &found["Modify"]["LoadBalancers"][0];
    assert_eq!(modified["HostComputeEndpoints"], json!([LOCAL_ID]));
    assert_eq!(found["Delete"]["Endpoints"][0]["ID"], number(3));
    assert_eq!(found.get("Create"), None, "{found:#}");
}

#[test]
fn a_load_balancer_without_endpoints_in_hns_is_a_rejection() {
    let stage = stage();
    stage.write("web.yaml", &service("web", "10.96.0.10"));
    let mut synced = synced(&stage);
    let web = service("web", "10.96.0.10") + &slice("web", 1, 1);
    let web = web.replace("[10.244.1.1]", "[10.244.1.1]\n  nodeName: node-1");
    stage.write("web.yaml", &web);
    let local = synced["Endpoints"].as_array_mut().unwrap().pop();
    assert_eq!(local.unwrap()["ID"], LOCAL_ID);
    let outcome = run(&stage, &synced, &format!("diff {OVERLAY}"));
    assert_eq!((outcome.code, &*outcome.stdout), (3, ""), "{outcome:?}");
    let reason = "HNS has none of the endpoints";
    assert!(outcome.stderr.contains(reason), "{}", outcome.stderr);
}

#[test]
fn a_load_balancer_whose_endpoints_are_gone_makes_room() {
    let stage = stage();
    let mut synced = synced(&stage);
    let diff = format!("diff {OVERLAY}");
    let first = &mut synced["LoadBalancers"][0];
    let id = "E0000000-0000-0000-0000-000000000001";
    first["ID"] = id.into();
    first["HostComputeEndpoints"] = json!(["B0000000-0000-0000-0000-000000000009"]);
    let found = documents(&stage, &synced, &diff, 1);
    assert_eq!(found["Delete"]["LoadBalancers"][0]["ID"], id, "{found:#}");
    let created = &found["Create"]["LoadBalancers"][0];
    assert_eq!(created["FrontendVIPs"], json!(["10.96.0.10"]), "{found:#}");
}

#[test]
fn settings_come_from_flags_the_environment_or_a_file() {
    let stage = stage();
    let by_flags = documents(&stage, &node(), &format!("render {OVERLAY}"), 0);
    let file = stage.folder.path().join("config.yaml");
    let text = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n\
                mode: kernelspace\nwinkernel: {networkName: vxlan0, sourceVip: 10.244.1.200, \
                enableDSR: true}\n";
    fs::write(&file, text).unwrap();
    let by_file = format!("render --config {}", file.display());
    assert_eq!(documents(&stage, &node(), &by_file, 0), by_flags);

    let without_dsr = format!("{OVERLAY} --enable-dsr=false");
    let found = documents(&stage, &node(), &format!("render {without_dsr}"), 0);
    assert_eq!(found["LoadBalancers"][0].get("Flags"), None, "{found:#}");

    let line = "render --source-vip 10.244.1.200 --enable-dsr";
    let state = stage.folder.path().join("hns.json");
    let line = format!("{line} --against {}", state.display());
    let outcome = stage.run_through(&["env", "KUBE_NETWORK=vxlan0"], &line);
    let by_variable: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(by_variable, by_flags);

    let written = stage.folder.path().join("written.yaml");
    let outcome = stage.run(&format!("--write-config-to {}", written.display()));
    assert_eq!(outcome.code, 0, "{outcome:?}");
    let text = fs::read_to_string(written).unwrap();
    assert!(text.contains("rootHnsEndpointName: cbr0\n"), "{text}");
}

#[test]
fn health_checks_are_forwarded_to_the_root_endpoint() {
    let stage = stage();
    let balanced = "---\napiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {type: \
                    LoadBalancer, clusterIP: 10.96.0.10, externalTrafficPolicy: Local, \
                    healthCheckNodePort: 30100, ports: [{port: 80, nodePort: 30080}]}\nstatus: \
                    {loadBalancer: {ingress: [{ip: 203.0.113.7}]}}\n";
    let slice = slice("web", 1, 1).replace("[10.244.1.1]", "[10.244.1.1]\n  nodeName: node-1");
    stage.write("web.yaml", &(balanced.to_owned() + &slice));
    let mut node = node();
    node["Endpoints"][0]["Name"] = "cbr0".into();
    for (flags, has_health_check) in [
        ("", false),
        ("--forward-healthcheck-vip", true),
        ("--forward-healthcheck-vip --root-hnsendpoint-name x", false),
    ] {
        let found = documents(&stage, &node, &format!("render {OVERLAY} {flags}"), 0);
        let mut load_balancers = found["LoadBalancers"].as_array().unwrap().iter();
        let is_found = load_balancers.any(|it| it["PortMappings"][0]["ExternalPort"] == 30100);
        assert_eq!(is_found, has_health_check, "{flags}: {found:#}");
    }
}

#[test]
fn commands_that_need_windows_are_refused_in_one_line() {
    let stage = stage();
    let run_reason = "mode kernelspace does not run on Linux; use the commands render and diff";
    for (line, code, reason) in [
        ("", 1, run_reason),
        ("--oneshot", 1, run_reason),
        ("--init-only", 1, run_reason),
        (
            "explain service web",
            2,
            "explain does not support mode kernelspace",
        ),
        (
            "save-kernel",
            2,
            "save-kernel does not support mode kernelspace",
        ),
        ("render", 2, "--against FILE"),
    ] {
        let outcome = stage.run(line);
        assert_eq!(
            (outcome.code, &*outcome.stdout),
            (code, ""),
            "{line}: {outcome:?}"
        );
        assert!(outcome.stderr.contains(reason), "{line}: {outcome:?}");
        assert_eq!(outcome.stderr.lines().count(), 1, "{line}: {outcome:?}");
    }
}

#[test]
fn states_that_do_not_fit_the_flags_are_errors() {
    let stage = stage();
    let mut old = node();
    old["Version"] = json!({"Major": 9, "Minor": 2});
    let mut anonymous = node();
    anonymous["Endpoints"][0]["ID"] = "".into();
    let mut without_mac = node();
    without_mac["HostMac"] = "".into();
    let mut routeless = node();
    let policy = &mut routeless["Networks"][0]["Policies"][0];
    policy["Settings"]["DestinationPrefix"] = "10.244.2.0".into();
    let mut undecodable = node();
    undecodable["Networks"][0]["Policies"][0]["Settings"] = "10.244.2.0/24".into();
    let mut same_name = node();
    same_name["Networks"][1]["Name"] = "VXLAN0".into();
    let mut same_id = node();
    let copy = same_id["Endpoints"][0].clone();
    same_id["Endpoints"].as_array_mut().unwrap().push(copy);
    let mut same_load_balancers = node();
    same_load_balancers["LoadBalancers"] = json!([{"ID": "A1"}, {"ID": "A2"}, {"ID": "a1"}]);
    for (state, flags, reason) in [
        (node(), "--network-name other", "no network \"other\""),
        (node(), "--network-name vxlan0", "need --source-vip"),
        (
            node(),
            "--network-name vxlan0 --source-vip here",
            "\"here\" is not an IP address",
        ),
        (old, OVERLAY, "does not support --enable-dsr"),
        (anonymous, OVERLAY, "endpoint without ID"),
        (without_mac, OVERLAY, "HostMac is missing"),
        (json!({"Networks": []}), OVERLAY, "missing field `Version`"),
        (
            routeless,
            OVERLAY,
            "hns.json: network vxlan0: Policies[0] (RemoteSubnetRoute): DestinationPrefix \
             \"10.244.2.0\": ",
        ),
        (
            undecodable,
            OVERLAY,
            "hns.json: network vxlan0: Policies[0] (RemoteSubnetRoute): invalid type: string",
        ),
        (
            same_name,
            OVERLAY,
            "hns.json: Networks[1]: Name \"VXLAN0\" is also that of Networks[0]",
        ),
        (same_id, OVERLAY, "Endpoints[1]: ID \"B0000000"),
        (
            same_load_balancers,
            OVERLAY,
            "LoadBalancers[2]: ID \"a1\" is also that of LoadBalancers[0]",
        ),
    ] {
        for command in ["render", "diff"] {
            let outcome = run(&stage, &state, &format!("{command} {flags}"));
            assert_eq!((outcome.code, &*outcome.stdout), (2, ""), "{outcome:?}");
            assert!(outcome.stderr.contains(reason), "{outcome:?}");
        }
    }
}

#[test]
fn invalid_flags_are_errors_without_the_name_of_the_state() {
    let stage = stage();
    for (flags, reason) in [
        (
            "--network-name vxlan0",
            "ERROR overlay networks need --source-vip (winkernel.sourceVip)\n",
        ),
        (
            "--network-name vxlan0 --source-vip here",
            "ERROR --source-vip: \"here\" is not an IP address\n",
        ),
        (
            "--network-name vxlan0 --source-vip 10.244.1.200 --bind-address fd00::1",
            "ERROR --source-vip: 10.244.1.200 and --bind-address fd00::1 have different IP \
             families\n",
        ),
        ("", "ERROR the name of the network is missing"),
    ] {
        let outcome = run(&stage, &node(), &format!("render {flags}"));
        assert_eq!((outcome.code, &*outcome.stdout), (2, ""), "{outcome:?}");
        assert!(outcome.stderr.contains(reason), "{outcome:?}");
    }
}

#[test]
fn health_checks_need_a_port() {
    let stage = stage();
    let balanced = "---\napiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {type: \
                    LoadBalancer, clusterIP: 10.96.0.10, ports: [{port: 80}]}\nstatus: \
                    {loadBalancer: {ingress: [{ip: 203.0.113.7}]}}\n";
    stage.write("web.yaml", &(balanced.to_owned() + &slice("web", 2, 1)));
    let mut node = node();
    node["Endpoints"][0]["Name"] = "cbr0".into();
    for (flag, expected) in [
        (
            "--healthz-bind-address 127.0.0.1:10300",
            &[80, 80, 10300][..],
        ),
        ("--healthz-port 0", &[80, 80]),
    ] {
        let line = format!("render {OVERLAY} --forward-healthcheck-vip {flag}");
        let found = documents(&stage, &node, &line, 0);
        let load_balancers = found["LoadBalancers"].as_array().unwrap().iter();
        let mut ports: Vec<_> = load_balancers
            .map(|it| it["PortMappings"][0]["ExternalPort"].as_u64().unwrap())
            .collect();
        ports.sort_unstable();
        assert_eq!(ports, expected, "{flag}: {found:#}");
    }
}

#[test]
fn the_difference_deletes_surplus_load_balancers_of_a_frontend() {
    let stage = stage();
    let mut synced = synced(&stage);
    let mut surplus = synced["LoadBalancers"][0].clone();
    surplus["ID"] = "E0000000-0000-0000-0000-000000000001".into();
    surplus["Flags"] = 3.into();
    let load_balancers = synced["LoadBalancers"].as_array_mut().unwrap();
    load_balancers.push(surplus.clone());
    let found = documents(&stage, &synced, &format!("diff {OVERLAY}"), 1);
    let expected = json!({"Delete": {"LoadBalancers": [surplus]}});
    assert_eq!(found, expected, "{found:#}");
}

#[test]
fn without_modification_the_difference_deletes_and_creates() {
    let stage = stage();
    let mut synced = synced(&stage);
    synced["Version"] = json!({"Major": 11, "Minor": 10});
    let mut old = synced["LoadBalancers"][0].clone();
    old["PortMappings"][0]["InternalPort"] = 8081.into();
    // The next identifier.
    old["ID"] = number(4).into();
    synced["LoadBalancers"] = json!([old.clone()]);
    let found = documents(&stage, &synced, &format!("diff {OVERLAY}"), 1);
    assert_eq!(
        found["Delete"],
        json!({"LoadBalancers": [old]}),
        "{found:#}"
    );
    let created = &found["Create"]["LoadBalancers"][0];
    assert_eq!(
        created["PortMappings"][0]["InternalPort"], 8080,
        "{found:#}"
    );
    assert_eq!(found.get("Modify"), None, "{found:#}");
}
