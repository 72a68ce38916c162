//! Changes of policies in the double.

use serde::Deserialize;
use serde_json::Value;

use crate::{HResult, ModifyRequest, Policy, RequestType, ResourceType, Settings};

/// Applies a change to policies.
pub(super) fn apply<S: Settings + Clone + PartialEq>(
    policies: &mut Vec<Policy<S>>,
    request: &ModifyRequest,
) -> Result<(), HResult> {
    if request.resource_type != ResourceType::Policy {
        return Err(HResult::HCN_E_REQUEST_UNSUPPORTED);
    }
    let changed = request.settings.get("Policies").unwrap_or(&Value::Null);
    let changed = Vec::<Policy<S>>::deserialize(changed);
    let changed = changed.map_err(|_| HResult::HCN_E_INVALID_JSON)?;
    match request.request_type {
        RequestType::Add => {
            if changed.iter().any(|it| policies.contains(it)) {
                return Err(HResult::HCN_E_POLICY_ALREADY_EXISTS);
            }
            policies.extend(changed);
        }
        RequestType::Remove => {
            if !changed.iter().all(|it| policies.contains(it)) {
                return Err(HResult::HCN_E_POLICY_NOT_FOUND);
            }
            policies.retain(|it| !changed.contains(it));
        }
        RequestType::Update => *policies = changed,
        _ => return Err(HResult::HCN_E_REQUEST_UNSUPPORTED),
    }
    Ok(())
}
