//! What an image is called: its name as a person writes it, and its platform.

/// The name under which hosts are to know an image that a person calls `asked` and the engine by these names:
/// `mnist` is `mnist:latest`. `None` where it was called by its id or by a digest.
pub fn name(asked: &str, names: &[String]) -> Option<String> {
    if asked.contains('@') {
        return None;
    }
    // docker writes no registry of its own
    let asked =
        ["docker.io/", "index.docker.io/"].iter().find_map(|own| asked.strip_prefix(own)).unwrap_or(asked);
    let asked = asked.strip_prefix("library/").unwrap_or(asked);
    let last = asked.rsplit('/').next().unwrap_or(asked);
    let full = if last.contains(':') { asked.to_owned() } else { format!("{asked}:latest") };
    // podman's names begin with a registry that the user has not written
    let is =
        |name: &String| *name == full || name.strip_suffix(&full).is_some_and(|rest| rest.ends_with('/'));
    names.iter().any(is).then_some(full)
}

/// For which machines an image must be to run here, as engines write it: `linux/amd64`.
pub fn platform_of_this_machine() -> String {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        "powerpc64" => "ppc64le",
        other => other,
    };
    format!("{}/{architecture}", std::env::consts::OS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_what_was_written_with_its_tag() {
        let named = |asked: &str, names: &[&str]| {
            name(asked, &names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(named("mnist", &["x:1", "mnist:latest"]).as_deref(), Some("mnist:latest"));
        assert_eq!(
            named("a.b:5000/mnist", &["a.b:5000/mnist:latest"]).as_deref(),
            Some("a.b:5000/mnist:latest")
        );
        assert_eq!(named("mnist:2", &["localhost/mnist:2"]).as_deref(), Some("mnist:2"));
        assert_eq!(named("docker.io/library/mnist:2", &["mnist:2"]).as_deref(), Some("mnist:2"));
        assert_eq!(named("docker.io/ml/mnist", &["ml/mnist:latest"]).as_deref(), Some("ml/mnist:latest"));
        assert_eq!(named("nist:2", &["mnist:2"]), None, "an id has no name");
        assert_eq!(named("003727660d60", &["mnist:2"]), None);
        assert_eq!(named("mnist@sha256:00", &["mnist:latest"]), None);
    }
}
