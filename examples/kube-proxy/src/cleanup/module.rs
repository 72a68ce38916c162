//! Kernel modules. A module that is not loaded holds no state, and a request
//! would load it.

use std::path::Path;

/// Directory of loaded and built-in modules.
const MODULES: &str = "/sys/module";

/// Returns whether a module is loaded or built in. Returns `true` if that is
/// unknown.
pub fn is_loaded(name: &str) -> bool {
    is_shown(Path::new(MODULES), name)
}

fn is_shown(modules: &Path, name: &str) -> bool {
    !modules.exists() || modules.join(name).exists()
}

#[cfg(test)]
mod tests {
    use testkit::scoped::Directory;

    use super::*;

    #[test]
    fn a_module_missing_in_the_list_is_not_loaded() {
        let folder = Directory::new().unwrap();
        let modules = folder.path();
        std::fs::create_dir(modules.join("ip_vs")).unwrap();
        assert!(is_shown(modules, "ip_vs"));
        assert!(!is_shown(modules, "ip_set"));
        assert!(is_shown(&modules.join("absent"), "ip_set"));
    }
}
