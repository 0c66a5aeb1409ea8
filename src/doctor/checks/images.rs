//! Whether images with one name are one image on all hosts.

use std::collections::BTreeMap;

use super::super::compare::Compared;
use super::super::{Check, Seen, Site, shell_word};
use super::docker;
use crate::domain::doctor::Verdict;

pub(in crate::doctor) struct Images;

/// Images that are told, the newest first; and of those that differ, the ones that are named.
const MOST: usize = 300;
const NAMED: usize = 3;

impl Check for Images {
    const NAME: &'static str = "images";
    const ASKS: &'static str = "are container images with one name the same on all hosts";
    /// Ids by name; absent where there is no docker that answers.
    type Found = Option<BTreeMap<String, String>>;

    fn look(site: &Site) -> Result<Self::Found, String> {
        let Some(program) = site.program("docker") else { return Ok(None) };
        if !docker::info(site, &program)?.status.success() {
            return Ok(None);
        }
        let told = site
            .ask(&program, &["image", "ls", "--no-trunc", "--format", "{{.Repository}}:{{.Tag}} {{.ID}}"])?;
        // why it refuses is told by another check
        Ok(told.status.success().then(|| told.out.lines().filter_map(entry).take(MOST).collect()))
    }

    fn judge(seen: &[Seen<'_, Self::Found>]) -> Vec<Verdict> {
        let mut by_name: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
        for one in seen {
            for (name, id) in one.found.iter().flatten() {
                by_name.entry(name).or_default().push((one.host.as_str(), id));
            }
        }
        let all: BTreeMap<&str, Compared<'_>> =
            by_name.into_iter().map(|(name, all)| (name, Compared::new(all))).collect();
        seen.iter().map(|one| judge(one.found.as_ref(), &all)).collect()
    }
}

/// A line: the name, and the first letters of the id. What has no name is no other one's namesake.
fn entry(line: &str) -> Option<(String, String)> {
    let (name, id) = line.split_once(' ')?;
    let id = id.trim().rsplit(':').next()?;
    (!name.contains("<none>")).then(|| (name.to_owned(), id.chars().take(12).collect()))
}

fn judge(found: Option<&BTreeMap<String, String>>, all: &BTreeMap<&str, Compared<'_>>) -> Verdict {
    let Some(found) = found else { return Verdict::unknown("no docker that answers") };
    let differ: Vec<(&str, String)> = found
        .iter()
        .filter_map(|(name, id)| {
            Some((name.as_str(), format!("{name} is {id} ({})", all.get(name.as_str())?.difference(id)?)))
        })
        .collect();
    let Some((first, _)) = differ.first() else {
        return Verdict::good(match found.len() {
            1 => "1 image".to_owned(),
            count => format!("{count} images"),
        });
    };
    let mut words: Vec<&str> = differ.iter().take(NAMED).map(|(_, words)| words.as_str()).collect();
    let more = format!("{} more", differ.len().saturating_sub(NAMED));
    words.extend((differ.len() > NAMED).then_some(more.as_str()));
    Verdict::look(
        words.join(", "),
        "ranks in containers of one name run unlike code",
        format!("hvtui image push {} from the machine whose image is meant", shell_word(first)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::tests::seen;
    use crate::domain::preflight::Mark;

    #[test]
    fn one_name_for_two_images_is_told() {
        let of = |images: &[(&str, &str)]| {
            Some(
                images
                    .iter()
                    .map(|(name, id)| ((*name).to_owned(), (*id).to_owned()))
                    .collect::<BTreeMap<_, _>>(),
            )
        };
        let verdicts = Images::judge(&seen([
            of(&[("train:1", "aaaa"), ("own:1", "cccc")]),
            of(&[("train:1", "aaaa")]),
            of(&[("train:1", "bbbb"), ("other:1", "dddd")]),
            None,
        ]));
        let marks: Vec<Mark> = verdicts.iter().map(|one| one.mark).collect();
        assert_eq!(marks, [Mark::Good, Mark::Good, Mark::Look, Mark::Unknown]);
        assert_eq!(verdicts[2].evidence, "train:1 is bbbb (other hosts have aaaa)");
        assert!(verdicts[2].remedy.as_ref().unwrap().starts_with("hvtui image push train:1 "));
    }

    #[test]
    fn lines_are_read_as_docker_prints_them() {
        assert_eq!(
            entry("ghcr.io/me/train:1 sha256:0123456789abcdef0123"),
            Some(("ghcr.io/me/train:1".into(), "0123456789ab".into()))
        );
        assert_eq!(entry("<none>:<none> sha256:0123"), None);
    }
}
