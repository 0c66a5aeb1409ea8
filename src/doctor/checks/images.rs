//! Whether images with one name are one image on all hosts.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::super::compare::Compared;
use super::super::{Check, Seen, Site, shell_word};
use super::docker;
use crate::domain::doctor::Verdict;
use crate::program::engines::made_of;

pub(in crate::doctor) struct Images;

/// Images that are told, the newest first; and of those that differ, the ones that are named.
const MOST: usize = 300;
const NAMED: usize = 3;
/// Letters of an id and of a hash.
const DIGITS: usize = 12;
/// How long an engine may take to tell what they are made of.
const OF_CONTENTS: Duration = Duration::from_millis(3500);
/// What podman writes before a name, and docker does not.
const BEFORE: [&str; 3] = ["docker.io/library/", "docker.io/", "localhost/"];

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::doctor) struct Image {
    /// The beginning of its engine's id.
    id: String,
    /// The beginning of a hash of what it is made of, where that is known. Engines have ids of other things: of the configuration,
    /// or of the manifest in containerd's store.
    content: Option<String>,
}

impl Check for Images {
    const NAME: &'static str = "images";
    const ASKS: &'static str = "are container images with one name the same on all hosts";
    /// The engine is asked three times, and may have many.
    const PATIENCE: Duration = Duration::from_secs(8);
    /// By name; absent where there is no engine that answers.
    type Found = Option<BTreeMap<String, Image>>;

    fn look(site: &Site) -> Result<Self::Found, String> {
        // why it refuses is told by another check
        let Some(engine) = docker::engine(site)?.filter(|engine| engine.refused.is_none()) else {
            return Ok(None);
        };
        let listed = ["image", "ls", "--no-trunc", "--format", "{{.Repository}}:{{.Tag}} {{.ID}}"];
        let told = site.ask(&engine.program, &listed)?;
        if !told.status.success() {
            return Ok(None);
        }
        let named: Vec<(&str, &str)> = told.out.lines().filter_map(entry).take(MOST).collect();
        let contents = contents(&engine.program, named.iter().map(|(_, id)| *id).collect());
        let mut images = BTreeMap::new();
        for (name, id) in named {
            let id = short(id);
            let content = contents.get(&id).cloned();
            images.entry(name.to_owned()).or_insert(Image { id, content });
        }
        Ok(Some(images))
    }

    fn judge(seen: &[Seen<'_, Self::Found>]) -> Vec<Verdict> {
        let same = same(seen.iter().flat_map(|one| one.found.iter().flatten()).map(|(_, image)| image));
        let mut by_name: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
        for one in seen {
            for (name, image) in one.found.iter().flatten() {
                by_name.entry(name).or_default().push((one.host.as_str(), known(image, &same)));
            }
        }
        let all: BTreeMap<&str, Compared<'_>> =
            by_name.into_iter().map(|(name, all)| (name, Compared::new(all))).collect();
        seen.iter().map(|one| judge(one.found.as_ref(), &all, &same)).collect()
    }
}

/// A line: the name, as docker writes it, and the id. What has no name is no other one's namesake.
fn entry(line: &str) -> Option<(&str, &str)> {
    let (name, id) = line.split_once(' ')?;
    let name = BEFORE.iter().find_map(|before| name.strip_prefix(*before)).unwrap_or(name);
    (!name.contains("<none>")).then(|| (name, id.trim()))
}

/// The first letters of an id or a hash.
fn short(id: &str) -> String {
    id.rsplit(':').next().unwrap_or(id).chars().take(DIGITS).collect()
}

/// Hashes of what images are made of, by the beginnings of their ids. Without an answer in time their ids alone are compared.
fn contents(engine: &Path, ids: BTreeSet<&str>) -> BTreeMap<String, String> {
    if ids.is_empty() {
        return BTreeMap::new();
    }
    let asked: Vec<&str> = ["image", "inspect", "--"].into_iter().chain(ids).collect();
    // one that was removed meanwhile makes it fail behind the others
    let told = Site::ask_within(engine, &asked, OF_CONTENTS).ok();
    told.map_or_else(BTreeMap::new, |told| contents_of(&told.out))
}

/// Of what `image inspect` prints.
fn contents_of(said: &str) -> BTreeMap<String, String> {
    let all: Vec<Value> = serde_json::from_str(said).unwrap_or_default();
    let content = |facts: &Value| Some((short(facts["Id"].as_str()?), short(&made_of(facts))));
    all.iter().filter_map(content).filter(|(_, content)| !content.is_empty()).collect()
}

/// Of ids that engines give to the same content the first one, by each of them.
fn same<'a>(images: impl Iterator<Item = &'a Image>) -> BTreeMap<&'a str, &'a str> {
    let mut first: BTreeMap<&str, &str> = BTreeMap::new();
    let mut same = BTreeMap::new();
    for image in images {
        if let Some(content) = &image.content {
            let id = *first.entry(content.as_str()).or_insert(image.id.as_str());
            same.insert(image.id.as_str(), id);
        }
    }
    same
}

/// The id by which an image is compared.
fn known<'a>(image: &'a Image, same: &BTreeMap<&'a str, &'a str>) -> &'a str {
    same.get(image.id.as_str()).copied().unwrap_or(image.id.as_str())
}

fn judge<'a>(
    found: Option<&'a BTreeMap<String, Image>>,
    all: &BTreeMap<&str, Compared<'_>>,
    same: &BTreeMap<&'a str, &'a str>,
) -> Verdict {
    let Some(found) = found else { return Verdict::unknown("no container engine that answers") };
    let differ: Vec<(&str, String)> = found
        .iter()
        .filter_map(|(name, image)| {
            let difference = all.get(name.as_str())?.difference(known(image, same))?;
            Some((name.as_str(), format!("{name} is {} ({difference})", image.id)))
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

    /// Each its name, its id and what it is made of.
    fn of(images: &[(&str, &str, Option<&str>)]) -> Option<BTreeMap<String, Image>> {
        let image = |id: &str, content: Option<&str>| Image {
            id: id.to_owned(),
            content: content.map(str::to_owned),
        };
        Some(images.iter().map(|(name, id, content)| ((*name).to_owned(), image(id, *content))).collect())
    }

    fn marks(verdicts: &[Verdict]) -> Vec<Mark> {
        verdicts.iter().map(|one| one.mark).collect()
    }

    #[test]
    fn one_name_for_two_images_is_told() {
        let verdicts = Images::judge(&seen([
            of(&[("train:1", "aaaa", None), ("own:1", "cccc", None)]),
            of(&[("train:1", "aaaa", None)]),
            of(&[("train:1", "bbbb", None), ("other:1", "dddd", None)]),
            None,
        ]));
        assert_eq!(marks(&verdicts), [Mark::Good, Mark::Good, Mark::Look, Mark::Unknown]);
        assert_eq!(verdicts[2].evidence, "train:1 is bbbb (other hosts have aaaa)");
        assert!(verdicts[2].remedy.as_ref().unwrap().starts_with("hvtui image push train:1 "));
    }

    #[test]
    fn the_same_content_is_the_same_image_whatever_engines_call_it() {
        let (first, second) = (Some("1111"), Some("2222"));
        // docker's own store, containerd's twice, an engine that told no content, and another image
        let verdicts = Images::judge(&seen([
            of(&[("train:1", "aaaa", first)]),
            of(&[("train:1", "bbbb", first)]),
            of(&[("train:1", "bbbb", first)]),
            of(&[("train:1", "bbbb", None)]),
            of(&[("train:1", "cccc", second)]),
        ]));
        assert_eq!(marks(&verdicts), [Mark::Good, Mark::Good, Mark::Good, Mark::Good, Mark::Look]);
        assert_eq!(verdicts[4].evidence, "train:1 is cccc (other hosts have aaaa)");
    }

    #[test]
    fn lines_are_read_as_engines_print_them() {
        let id = "sha256:0123456789abcdef0123";
        assert_eq!(entry(&format!("ghcr.io/me/train:1 {id}")), Some(("ghcr.io/me/train:1", id)));
        for podmans in ["localhost/train:1", "docker.io/library/train:1"] {
            assert_eq!(entry(&format!("{podmans} {id}")), Some(("train:1", id)));
        }
        assert_eq!(entry("<none>:<none> sha256:0123"), None);
        assert_eq!(
            (short(id).as_str(), short("0123456789abcdef").as_str()),
            ("0123456789ab", "0123456789ab")
        );
    }

    #[test]
    fn what_images_are_made_of_is_read_whatever_engine_tells_it() {
        let of = |id: &str, env: &str| {
            let told = format!(
                r#"[{{"Id":"{id}","RootFS":{{"Layers":["sha256:1","sha256:2"]}},"Config":{{"Env":["{env}"]}}}},{{"Id":"sha256:9"}}]"#
            );
            contents_of(&told)
        };
        let docker = of("sha256:aaaaaaaaaaaaaaaa", "A=1");
        assert_eq!(docker.keys().collect::<Vec<_>>(), ["aaaaaaaaaaaa"], "one without layers tells nothing");
        assert_eq!(docker.values().next(), of("bbbb", "A=1").values().next());
        assert_ne!(docker.values().next(), of("bbbb", "A=2").values().next());
        assert!(contents_of("no JSON").is_empty());
    }
}
