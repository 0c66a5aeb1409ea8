//! Whether images with one name are one image on all hosts.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::super::compare::Compared;
use super::super::{Check, Seen, Site, shell_word};
use super::docker;
use crate::clock;
use crate::domain::doctor::Verdict;
use crate::program::engines::made_of;

pub(in crate::doctor) struct Images;

/// Images that are told, the newest first; and of those that differ, the ones that are named.
const MOST: usize = 300;
const NAMED: usize = 3;
/// Letters of an id and of a hash.
const DIGITS: usize = 12;
/// How long all questions may take together: a client waits for 8 s.
const ALL: Duration = Duration::from_millis(5500);
/// Of an image what tells it from others, in a line: all that is told of one is much, and what a program says is cut.
const MADE_OF: &str = "{{.Id}} {{json .RootFS}} {{json .Config}}";
/// What podman writes before a name, and docker does not.
const BEFORE: [&str; 3] = ["docker.io/library/", "docker.io/", "localhost/"];

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::doctor) struct Image {
    /// The beginning of its engine's id.
    id: String,
    /// The beginning of a hash of what it is made of, where that is known. Engines have ids of other things: of the configuration,
    /// or of the manifest in containerd's store.
    content: Option<String>,
    /// What gave it that id; empty where an older hvtui looks.
    #[serde(default)]
    by: String,
}

impl Check for Images {
    const NAME: &'static str = "images";
    const ASKS: &'static str = "are container images with one name the same on all hosts";
    /// The engine is asked three times, and may have many.
    const PATIENCE: Duration = Duration::from_secs(6);
    /// By name; absent where there is no engine that answers.
    type Found = Option<BTreeMap<String, Image>>;

    fn look(site: &Site) -> Result<Self::Found, String> {
        let begun = clock::host_now().0;
        let left = || ALL.saturating_sub(Duration::from_micros(clock::host_now().0.saturating_sub(begun)));
        // why it refuses is told by another check
        let Some(engine) = docker::engine(site)?.filter(|engine| engine.refused.is_none()) else {
            return Ok(None);
        };
        let listed = ["image", "ls", "--no-trunc", "--format", "{{.Repository}}:{{.Tag}} {{.ID}}"];
        let told = Site::ask_within(&engine.program, &listed, left())?;
        if !told.status.success() {
            return Ok(None);
        }
        let named: Vec<(&str, &str)> = told.out.lines().filter_map(entry).take(MOST).collect();
        let contents = contents(&engine.program, named.iter().map(|(_, id)| *id).collect(), left());
        let by = engine.numbering();
        let mut images = BTreeMap::new();
        for (name, id) in named {
            let id = short(id);
            let content = contents.get(&id).cloned();
            images.entry(name.to_owned()).or_insert(Image { id, content, by: by.to_owned() });
        }
        Ok(Some(images))
    }

    fn judge(seen: &[Seen<'_, Self::Found>]) -> Vec<Verdict> {
        let same = same(seen.iter().flat_map(|one| one.found.iter().flatten()).map(|(_, image)| image));
        let mut by_name: BTreeMap<&str, Vec<Known<'_>>> = BTreeMap::new();
        for one in seen {
            for (name, image) in one.found.iter().flatten() {
                by_name.entry(name).or_default().push(Known::of(one.host.as_str(), image, &same));
            }
        }
        // most are the same everywhere
        by_name.retain(|_, all| all.iter().any(|one| one.id != all[0].id));
        let judge = |one: &Seen<'_, Self::Found>| judge(one.host.as_str(), one.found.as_ref(), &by_name);
        seen.iter().map(judge).collect()
    }
}

/// An image of a host as it is compared.
struct Known<'a> {
    host: &'a str,
    /// Of ids that engines give to the same content the first one.
    id: &'a str,
    /// Whether it is known what it is made of.
    has_content: bool,
    by: &'a str,
}

impl<'a> Known<'a> {
    fn of(host: &'a str, image: &'a Image, same: &BTreeMap<&'a str, &'a str>) -> Self {
        let alike = same.get(image.id.as_str()).copied();
        Self { host, id: alike.unwrap_or(&image.id), has_content: alike.is_some(), by: &image.by }
    }

    /// Whether another id means another image: engines and their stores give the same one others.
    fn is_comparable(&self, other: &Self) -> bool {
        (self.has_content && other.has_content) || self.by == other.by
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
fn contents(engine: &Path, ids: BTreeSet<&str>, patience: Duration) -> BTreeMap<String, String> {
    if ids.is_empty() {
        return BTreeMap::new();
    }
    let asked: Vec<&str> = ["image", "inspect", "--format", MADE_OF, "--"].into_iter().chain(ids).collect();
    // one that was removed meanwhile makes it fail behind the others
    let told = Site::ask_within(engine, &asked, patience).ok();
    told.map_or_else(BTreeMap::new, |told| contents_of(&told.out))
}

/// Of what `image inspect` prints so.
fn contents_of(said: &str) -> BTreeMap<String, String> {
    let content = |line: &str| {
        let (id, rest) = line.split_once(' ')?;
        let mut parts = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
        let (layers, config) = (parts.next()?.ok()?, parts.next()?.ok()?);
        let facts = Value::from_iter([("RootFS", layers), ("Config", config)]);
        Some((short(id), short(&made_of(&facts))))
    };
    said.lines().filter_map(content).filter(|(_, content)| !content.is_empty()).collect()
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

fn judge(
    host: &str,
    found: Option<&BTreeMap<String, Image>>,
    all: &BTreeMap<&str, Vec<Known<'_>>>,
) -> Verdict {
    let Some(found) = found else { return Verdict::unknown("no container engine that answers") };
    let differ: Vec<(&str, String)> = found
        .iter()
        .filter_map(|(name, image)| {
            let all = all.get(name.as_str())?;
            let own = all.iter().find(|one| one.host == host)?;
            let comparable = all.iter().filter(|one| own.is_comparable(one));
            let difference = Compared::new(comparable.map(|one| (one.host, one.id))).difference(own.id)?;
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
    fn of(images: &[(&str, &str, Option<&str>)]) -> BTreeMap<String, Image> {
        let image = |id: &str, content: Option<&str>| Image {
            id: id.to_owned(),
            content: content.map(str::to_owned),
            by: "docker".to_owned(),
        };
        images.iter().map(|(name, id, content)| ((*name).to_owned(), image(id, *content))).collect()
    }

    fn marks(verdicts: &[Verdict]) -> Vec<Mark> {
        verdicts.iter().map(|one| one.mark).collect()
    }

    #[test]
    fn one_name_for_two_images_is_told() {
        let verdicts = Images::judge(&seen([
            Some(of(&[("train:1", "aaaa", None), ("own:1", "cccc", None)])),
            Some(of(&[("train:1", "aaaa", None)])),
            Some(of(&[("train:1", "bbbb", None), ("other:1", "dddd", None)])),
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
            Some(of(&[("train:1", "aaaa", first)])),
            Some(of(&[("train:1", "bbbb", first)])),
            Some(of(&[("train:1", "bbbb", first)])),
            Some(of(&[("train:1", "bbbb", None)])),
            Some(of(&[("train:1", "cccc", second)])),
        ]));
        assert_eq!(marks(&verdicts), [Mark::Good, Mark::Good, Mark::Good, Mark::Good, Mark::Look]);
        assert_eq!(verdicts[4].evidence, "train:1 is cccc (other hosts have aaaa)");
    }

    #[test]
    fn ids_of_unlike_engines_and_stores_are_not_compared_without_the_content() {
        let of = |by: &str, id: &str, content: Option<&str>| {
            let mut images = of(&[("train:1", id, content)]);
            for image in images.values_mut() {
                by.clone_into(&mut image.by);
            }
            Some(images)
        };
        let verdicts = Images::judge(&seen([
            of("docker", "aaaa", Some("1111")),
            of("docker", "aaaa", Some("1111")),
            of("docker", "aaaa", Some("1111")),
            of("containerd", "bbbb", None),
            of("podman", "cccc", None),
            of("docker", "dddd", None),
            of("podman", "eeee", Some("2222")),
        ]));
        let (good, look) = (Mark::Good, Mark::Look);
        assert_eq!(marks(&verdicts), [good, good, good, good, look, look, look]);
        assert_eq!(verdicts[4].evidence, "train:1 is cccc (host-6 has eeee)", "one of its own engine");
        assert_eq!(verdicts[5].evidence, "train:1 is dddd (other hosts have aaaa)");
        assert_eq!(verdicts[6].evidence, "train:1 is eeee (other hosts have aaaa)");
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
            let layers = r#"{"Type":"layers","Layers":["sha256:1","sha256:2"]}"#;
            contents_of(&format!(
                "{id} {layers} {{\"Env\":[\"{env}\"]}}\nsha256:9 {{\"Type\":\"\"}} null\nsha256:8 null\n"
            ))
        };
        let docker = of("sha256:aaaaaaaaaaaaaaaa", "A=1");
        assert_eq!(docker.keys().collect::<Vec<_>>(), ["aaaaaaaaaaaa"], "one without layers tells nothing");
        assert_eq!(docker.values().next(), of("bbbb", "A=1").values().next());
        assert_ne!(docker.values().next(), of("bbbb", "A=2").values().next());
        assert!(contents_of("no JSON").is_empty());
    }
}
