//! The configuration as YAML and JSON, as upstream writes it.

use std::fs;
use std::path::Path;

use serde_saphyr::SerializerOptions;

use super::Configuration;
use crate::failure::Failure;

/// Key of the configuration in `/configz`.
pub(super) const CONFIGZ_KEY: &str = "kubeproxy.config.k8s.io";

impl Configuration {
    /// Returns the configuration as YAML, with sorted keys.
    pub fn to_yaml(&self) -> String {
        // `serde_json` sorts the keys of this type.
        let sorted = serde_json::to_value(self).expect("a configuration is JSON");
        let options = SerializerOptions::default();
        serde_saphyr::to_string_with_options(&sorted, options).expect("JSON is YAML")
    }

    /// Returns the content of `/configz`.
    pub fn to_configz(&self) -> String {
        let configuration = serde_json::to_string(self).expect("a configuration is JSON");
        format!("{{\"{CONFIGZ_KEY}\":{configuration}}}")
    }

    /// Writes the configuration to a file.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), Failure> {
        fs::write(path, self.to_yaml())
            .map_err(|error| Failure::machine(format_args!("{}: {error}", path.display())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_is_written_as_in_upstream() {
        let mut configuration = Configuration::default();
        configuration.fill_for_system();
        configuration.reset_other_modes();
        assert_eq!(configuration.to_yaml(), include_str!("default.yaml"));
    }

    #[test]
    fn configz_has_the_fields_in_upstreams_order() {
        let text = Configuration::default().to_configz();
        let begin = "{\"kubeproxy.config.k8s.io\":{\"kind\":\"KubeProxyConfiguration\",\
                     \"apiVersion\":\"kubeproxy.config.k8s.io/v1alpha1\",\"clientConnection\":\
                     {\"kubeconfig\":\"\",\"acceptContentTypes\":\"\",\"contentType\":";
        assert!(text.starts_with(begin), "{text}");
        assert!(text.contains(",\"qps\":5,\"burst\":10},\"logging\":{\"format\":\"text\","));
        assert!(
            text.ends_with(",\"configSyncPeriod\":\"15m0s\",\"portRange\":\"\"}}"),
            "{text}"
        );
    }
}
