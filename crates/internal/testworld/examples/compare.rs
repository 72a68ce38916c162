//! Compares API validation with a real API server, request by request.
//!
//! Usage: `compare SEED COUNT [legacy | upgrades]`. Each request is one line on
//! stdout, as JSON with `method`, `path`, `body` and `strictness`. The response is one
//! line on stdin, as JSON with `code` and `object`. Each difference is one line on
//! stderr; the last line contains their number. Another program must forward the
//! requests to the server.
//!
//! Requests of strictness `legacy` are for a server with the feature gate
//! `StrictIPCIDRValidation` off. `upgrades` alternates between both kinds every 50
//! requests: two servers with one etcd.
#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a program to be run by hand"
)]

use std::io::{self, BufRead};

use serde_json::{Value, json};
use testworld::validation::Strictness;
use testworld::{Cluster, Id, Proposal, generate};
use vipline_service_model::Kind;
use vipline_service_model::arbitrary::Dice;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().unwrap_or_default();
    let (seed, count) = (next().parse().unwrap_or(1), next().parse().unwrap_or(1_000));
    let mode = next();
    let strictness = |number| match &*mode {
        "legacy" => Strictness::Legacy,
        "upgrades" if number / 50 % 2 == 0 => Strictness::Legacy,
        _ => Strictness::Strict,
    };
    let mut dice = Dice::from_seed(seed);
    let mut cluster = Cluster::new(strictness(0));
    let [mut accepted, mut rejected, mut leaked, mut disagreements] = [0; 4];
    for number in 0..count {
        cluster.set_strictness(strictness(number));
        let proposal = propose(&cluster, &mut dice, number);
        let (code, object) = ask(&request(&cluster, &proposal));
        let mut judged = cluster.clone();
        let judgment = judged.admit(proposal.clone());
        match code {
            200..300 => accepted += 1,
            _ => rejected += 1,
        }
        // Until its repair controllers run, the server keeps some addresses and node ports
        // of deleted Services.
        let is_leaked = object["message"].to_string().contains("already allocated");
        if is_leaked && judgment.is_ok() {
            leaked += 1;
        } else if judgment.is_ok() != (200..300).contains(&code) {
            disagreements += 1;
            let reason = match judgment {
                Ok(_) => object["message"].to_string(),
                Err(violations) => violations.join("; "),
            };
            let request = request(&cluster, &proposal);
            let former = cluster.get(&proposal.id()).map(|old| &old["spec"]);
            eprintln!("{code}: {reason}\n  {request}\n  after {former:?}");
        }
        follow(&mut cluster, judged, &proposal, code, object);
    }
    eprintln!(
        "{accepted} accepted, {rejected} rejected, {leaked} of them for leaked allocations; \
         {disagreements} judged otherwise"
    );
}

fn propose(cluster: &Cluster, dice: &mut Dice, number: u32) -> Proposal {
    let mut proposal = match number % 64 {
        63 => generate::giant(cluster, dice),
        _ => generate::proposal(cluster, dice),
    };
    let id = proposal.id();
    let held = cluster.get(&id).map(|object| &object["metadata"]);
    if held.is_some_and(|metadata| metadata["deletionTimestamp"].is_string()) {
        return Proposal::Delete(id);
    }
    if let Proposal::Create(_, object)
    | Proposal::Update(_, object)
    | Proposal::UpdateStatus(_, object) = &mut proposal
        && dice.once_in(2)
    {
        generate::corrupt(object, dice);
    }
    proposal
}

/// Replaces the cluster's object by the server's object.
fn follow(cluster: &mut Cluster, judged: Cluster, proposal: &Proposal, code: u64, object: Value) {
    let id = proposal.id();
    match proposal {
        Proposal::Delete(_) if code < 300 => *cluster = judged,
        _ if code < 300 => cluster.store(id.kind, object),
        _ => {}
    }
}

fn request(cluster: &Cluster, proposal: &Proposal) -> Value {
    let id = proposal.id();
    let (method, end, body) = match proposal {
        Proposal::Create(_, object) => ("POST", String::new(), object.clone()),
        Proposal::Update(_, object) => ("PUT", format!("/{}", id.name), object.clone()),
        Proposal::UpdateStatus(_, object) => {
            ("PUT", format!("/{}/status", id.name), object.clone())
        }
        Proposal::Delete(_) => ("DELETE", format!("/{}", id.name), Value::Null),
    };
    let mut body = body;
    // Updates are unconditional.
    if let Some(metadata) = body["metadata"].as_object_mut() {
        metadata.remove("resourceVersion");
        metadata.remove("uid");
    }
    // A separate request removes the finalizers of a terminating Service.
    let is_marked = cluster
        .get(&id)
        .is_some_and(|object| object["metadata"]["deletionTimestamp"].is_string());
    json!({
        "method": method,
        "path": collection(&id) + &end,
        "body": body,
        "strictness": match cluster.strictness() {
            Strictness::Strict => "strict",
            Strictness::Legacy => "legacy",
        },
        "release": is_marked && method == "DELETE",
    })
}

fn collection(id: &Id) -> String {
    match id.kind {
        Kind::Service => format!("/api/v1/namespaces/{}/services", id.namespace),
        Kind::EndpointSlice => format!(
            "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices",
            id.namespace
        ),
        Kind::Namespace => "/api/v1/namespaces".to_owned(),
        Kind::Node => "/api/v1/nodes".to_owned(),
        Kind::ServiceCidr => "/apis/networking.k8s.io/v1/servicecidrs".to_owned(),
    }
}

fn ask(request: &Value) -> (u64, Value) {
    println!("{request}");
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).expect("an answer");
    let mut answer: Value = serde_json::from_str(&line).expect("the answer is JSON");
    let code = answer["code"].as_u64().expect("the answer has a code");
    (code, answer["object"].take())
}
