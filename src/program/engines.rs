//! What container engines tell of themselves and of their images, whichever it is.

use ring::digest::{SHA256, digest};
use serde_json::Value;

use super::asked::Told;

/// Engines in the order in which they are looked for.
pub const KNOWN: [&str; 2] = ["docker", "podman"];

/// What docker's own `--gpus` needs.
pub const GPU_HOOK: &str = "nvidia-container-runtime-hook";

/// The question of itself that docker and podman, also one that is called docker, answer in JSON.
pub const INFO: [&str; 3] = ["info", "--format", "{{json .}}"];

/// Where descriptions of devices for containers (CDI) lie.
const CDI: [&str; 2] = ["/etc/cdi", "/var/run/cdi"];

/// Whether it is podman that tells this of itself.
pub fn is_podman(facts: &Value) -> bool {
    facts["host"].is_object()
}

/// The version of docker's daemon, or of podman.
pub fn version(facts: &Value) -> Option<&str> {
    let told = if is_podman(facts) { &facts["version"]["Version"] } else { &facts["ServerVersion"] };
    told.as_str().filter(|version| !version.is_empty())
}

/// What an engine has told of itself, from the first line that begins as JSON does: a program of the site's that stands before it may
/// say something first. `Null` where it is no JSON.
pub fn facts(told: &Told) -> Value {
    let is_first = told.out.starts_with('{').then_some(0);
    let Some(begin) = is_first.or_else(|| told.out.find("\n{").map(|at| at + 1)) else { return Value::Null };
    let mut values = serde_json::Deserializer::from_str(&told.out[begin..]).into_iter::<Value>();
    values.next().and_then(Result::ok).unwrap_or_default()
}

/// Why an engine can't be used, in its own words. Some versions of docker's client end well without a daemon: they tell no version of
/// it then. One that says nothing of itself and complains of nothing is not known to refuse.
pub fn refusal(told: &Told, facts: &Value) -> Option<String> {
    let errors = facts["ServerErrors"].as_array().map_or(&[][..], Vec::as_slice);
    let error = errors.iter().filter_map(Value::as_str).map(str::to_owned).next();
    let says_so = if facts.is_null() {
        told.err.trim().is_empty()
    } else {
        is_podman(facts) || version(facts).is_some()
    };
    let answers = told.status.success() && says_so;
    error.or_else(|| (!answers).then(|| told.last_words().to_owned()))
}

/// Whether this host describes its GPUs for containers.
pub fn describes_gpus() -> bool {
    let files = CDI.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten();
    let mut texts = files.filter_map(|file| std::fs::read_to_string(file.path()).ok());
    texts.any(|text| text.contains("nvidia.com/gpu"))
}

/// A digest over what an image is made of, the same whatever the engine: its layers and what it starts them with. Empty where that is
/// not told.
pub fn made_of(facts: &Value) -> String {
    let Some(layers) = facts["RootFS"]["Layers"].as_array().filter(|layers| !layers.is_empty()) else {
        return String::new();
    };
    let config = &facts["Config"];
    let mut parts: Vec<String> = layers.iter().map(Value::to_string).collect();
    let told =
        ["Env", "Entrypoint", "Cmd", "WorkingDir", "User", "Labels", "Volumes", "ExposedPorts", "StopSignal"];
    for name in told {
        // one engine leaves out what another one writes as empty
        let empty = match &config[name] {
            Value::Null => true,
            Value::Array(list) => list.is_empty(),
            Value::Object(map) => map.is_empty(),
            Value::String(text) => text.is_empty(),
            _ => false,
        };
        if !empty {
            parts.push(format!("{name}={}", config[name]));
        }
    }
    let bytes: Vec<String> = digest(&SHA256, parts.join("\n").as_bytes())
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    bytes.concat()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::*;

    #[test]
    fn one_that_does_not_answer_is_known_however_its_client_ends() {
        let said = |code: i32, out: &str, err: &str| {
            let status = ExitStatus::from_raw(code << 8);
            let told = Told { status, out: out.to_owned(), err: err.to_owned() };
            refusal(&told, &facts(&told))
        };
        let denied = "permission denied while trying to connect to the Docker daemon socket";
        let empty = r#"{"ServerVersion":"","RegistryConfig":null}"#;
        for code in [0, 1] {
            assert_eq!(said(code, empty, &format!("{denied}\n")).as_deref(), Some(denied), "{code}");
        }
        let old = format!(r#"{{"ServerErrors":["{denied}"]}}"#);
        assert_eq!(said(0, &old, "").as_deref(), Some(denied));
        assert_eq!(said(0, "  null null\n", denied).as_deref(), Some(denied), "it is no JSON");
        assert_eq!(said(0, r#"{"ServerVersion":"27.3.1"}"#, "WARNING: No swap limit support\n"), None);
        assert_eq!(said(0, r#"{"host":{"arch":"amd64"}}"#, "Emulate Docker CLI using podman.\n"), None);
        assert!(said(125, "", "Error: cannot re-exec process\n").is_some());
        // a program of the site's stands before it
        let behind = "site: docker 27 of /opt is used\n{\"ServerVersion\":\"27.3.1\"}\n";
        assert_eq!(said(0, behind, "site: see https://wiki\n"), None);
        assert_eq!(said(1, behind, "no right to it\n").as_deref(), Some("no right to it"));
        assert_eq!(said(0, &format!("site: docker\n{empty}\n"), denied).as_deref(), Some(denied));
        assert_eq!(said(0, "", ""), None, "it complains of nothing");
    }

    #[test]
    fn podman_is_known_by_what_it_tells_whatever_it_is_called() {
        let of = |text: &str| -> Value { serde_json::from_str(text).unwrap() };
        let podman = of(r#"{"host":{"arch":"amd64"},"version":{"APIVersion":"4.3.1","Version":"4.3.1"}}"#);
        assert_eq!((is_podman(&podman), version(&podman)), (true, Some("4.3.1")));
        let docker = of(r#"{"ServerVersion":"27.3.1"}"#);
        assert_eq!((is_podman(&docker), version(&docker)), (false, Some("27.3.1")));
        assert_eq!(version(&of(r#"{"ServerVersion":""}"#)), None);
        assert!(!is_podman(&Value::Null) && version(&Value::Null).is_none());
    }

    #[test]
    fn an_image_is_known_by_its_layers_and_what_it_starts() {
        let of = |text: &str| made_of(&serde_json::from_str(text).unwrap());
        let docker =
            of(r#"{"RootFS":{"Layers":["sha256:1"]},"Config":{"Env":["A=1"],"Entrypoint":null,"Cmd":[]}}"#);
        assert_eq!(docker, of(r#"{"RootFS":{"Layers":["sha256:1"]},"Config":{"Env":["A=1"],"User":""}}"#));
        assert_ne!(docker, of(r#"{"RootFS":{"Layers":["sha256:1"]},"Config":{"Env":["A=2"]}}"#));
        assert_eq!(docker, of(r#"{"RootFS":{"Layers":["sha256:1"]},"Config":{"Env":["A=1"],"Labels":{}}}"#));
        assert_ne!(
            docker,
            of(r#"{"RootFS":{"Layers":["sha256:1"]},"Config":{"Env":["A=1"],"Labels":{"rev":"2"}}}"#)
        );
        assert_eq!(of("{}"), "");
    }
}
