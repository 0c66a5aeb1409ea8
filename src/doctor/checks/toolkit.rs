//! Whether NVIDIA's toolkit, which gives GPUs to containers, is the same everywhere and knows the driver that runs.

use serde::{Deserialize, Serialize};

use super::super::compare::{Compared, minor};
use super::super::{Check, OfImage, Seen, Site};
use crate::domain::doctor::Verdict;

pub(in crate::doctor) struct Toolkit;

/// Where descriptions of GPUs for containers (CDI) lie: what is written at each start, which wins, and what an administrator writes.
const DESCRIPTIONS: [&str; 4] =
    ["/var/run/cdi/nvidia.yaml", "/var/run/cdi/nvidia.json", "/etc/cdi/nvidia.yaml", "/etc/cdi/nvidia.json"];

#[derive(Debug, Default, Serialize, Deserialize)]
pub(in crate::doctor) struct Found {
    /// The toolkit's version, `1.17.4`; absent without one.
    version: Option<String>,
    /// The file that describes the GPUs for CDI, and the driver's version of which it names libraries.
    cdi: Option<(String, Option<String>)>,
}

impl Check for Toolkit {
    const NAME: &'static str = "toolkit";
    const ASKS: &'static str =
        "is nvidia-container-toolkit the same on all hosts, and knows the driver that runs";
    const OF_IMAGE: OfImage = OfImage::Beside;
    type Found = Found;

    fn look(site: &Site) -> Result<Found, String> {
        let mut found = Found { cdi: DESCRIPTIONS.into_iter().find_map(description), ..Found::default() };
        if let Some(program) =
            ["nvidia-ctk", "nvidia-container-toolkit"].iter().find_map(|one| site.program(one))
        {
            let told = site.ask(&program, &["--version"])?;
            let own = version(&told.out);
            found.version = Some(own.ok_or_else(|| format!("{}: {}", program.display(), told.last_words()))?);
        }
        Ok(found)
    }

    fn judge(seen: &[Seen<'_, Found>]) -> Vec<Verdict> {
        let versions =
            seen.iter().filter_map(|one| Some((one.host.as_str(), minor(one.found.version.as_deref()?))));
        let all = Compared::new(versions);
        let driver = |one: &'_ Seen<'_, Found>| one.info.driver.value().cloned();
        seen.iter().map(|one| judge(&one.found, driver(one).as_deref(), &all)).collect()
    }
}

/// A description, and the driver that it was written for.
fn description(file: &str) -> Option<(String, Option<String>)> {
    let text = std::fs::read_to_string(file).ok()?;
    Some((file.to_owned(), of_driver(&text)))
}

/// The version in the name of the driver's library: `libcuda.so.550.54.14`. That of the link, `libcuda.so.1`, is none, nor is that of
/// systems whose driver lies elsewhere, `libcuda.so.1.1`.
fn of_driver(description: &str) -> Option<String> {
    description.split("libcuda.so.").skip(1).find_map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let version = rest[..end].trim_end_matches('.');
        version.split_once('.').filter(|(branch, _)| branch.len() >= 3).map(|_| version.to_owned())
    })
}

/// The version that either program says: `NVIDIA Container Toolkit CLI version 1.17.4`.
fn version(said: &str) -> Option<String> {
    let (_, rest) = said.lines().next()?.split_once("version ")?;
    Some(rest.trim().to_owned()).filter(|version| version.starts_with(|c: char| c.is_ascii_digit()))
}

fn judge(found: &Found, driver: Option<&str>, all: &Compared<'_>) -> Verdict {
    if let (Some((file, Some(own))), Some(driver)) = (&found.cdi, driver)
        && own != driver
    {
        let remedy = format!("sudo nvidia-ctk cdi generate --output={file}");
        return Verdict::look(
            format!("{file} was written for driver {own}, and {driver} runs"),
            "containers that get their GPUs by it don't start: the files that it names are gone",
            remedy.clone(),
        )
        .fixed_there(remedy);
    }
    let Some(own) = &found.version else {
        let words = if all.is_empty() {
            "no nvidia-container-toolkit"
        } else {
            "no nvidia-container-toolkit here; other hosts have it"
        };
        return Verdict::unknown(words);
    };
    let cdi = found.cdi.as_ref().map_or_else(String::new, |(file, _)| format!(", {file}"));
    match all.difference(minor(own)) {
        None => Verdict::good(format!("nvidia-container-toolkit {own}{cdi}")),
        Some(difference) => Verdict::look(
            format!("nvidia-container-toolkit {own} ({difference})"),
            "one command may give GPUs to containers on some hosts only",
            "install the same version on all hosts",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::tests::seen;
    use crate::domain::preflight::Mark;

    #[test]
    fn what_the_toolkit_and_its_descriptions_say_is_read() {
        assert_eq!(
            version("NVIDIA Container Toolkit CLI version 1.17.4\ncommit: 9b69590c\n").as_deref(),
            Some("1.17.4")
        );
        assert_eq!(version("NVIDIA Container Runtime Hook version 1.14.6\n").as_deref(), Some("1.14.6"));
        assert_eq!(version("bash: nvidia-ctk: command not found\n"), None);
        let text = "  - hostPath: /usr/lib/x86_64-linux-gnu/libcuda.so.1\n  - hostPath: /usr/lib/x86_64-linux-gnu/libcuda.so.550.54.14\n";
        assert_eq!(of_driver(text).as_deref(), Some("550.54.14"));
        assert_eq!(
            [of_driver("libcuda.so.1"), of_driver("libcuda.so.1.1"), of_driver("")],
            [None, None, None]
        );
    }

    #[test]
    fn the_odd_version_and_a_description_of_another_driver_are_told() {
        let found = |version: &str| Found { version: Some(version.to_owned()), cdi: None };
        let verdicts =
            Toolkit::judge(&seen([found("1.17.4"), found("1.17.8"), found("1.13.5"), Found::default()]));
        let marks: Vec<Mark> = verdicts.iter().map(|one| one.mark).collect();
        assert_eq!(marks, [Mark::Good, Mark::Good, Mark::Look, Mark::Unknown]);
        assert_eq!(verdicts[2].evidence, "nvidia-container-toolkit 1.13.5 (other hosts have 1.17)");
        let file = "/etc/cdi/nvidia.yaml".to_owned();
        let described = Found { cdi: Some((file, Some("535.54.03".into()))), ..found("1.17.4") };
        let none = Compared::new([("a", "1.17")]);
        let stale = judge(&described, Some("550.54.14"), &none);
        assert_eq!(
            stale.evidence,
            "/etc/cdi/nvidia.yaml was written for driver 535.54.03, and 550.54.14 runs"
        );
        assert!(stale.fix.is_some());
        assert_eq!(judge(&described, Some("535.54.03"), &none).mark, Mark::Good);
        assert_eq!(
            judge(&described, None, &none).mark,
            Mark::Good,
            "without a driver there is nothing to compare"
        );
    }
}
