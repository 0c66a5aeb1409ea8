//! Tests of copying images: what is asked of hosts and sent to them, without any host.

use tokio::sync::mpsc::UnboundedReceiver;

use super::*;
use crate::cluster::messages::Command;
use crate::sha256::of_bytes;

const BASE: &[u8] = b"base";
const TOP: &[u8] = b"top";
const CONFIG: &[u8] = b"{}";

fn blob(content: &[u8]) -> Blob {
    Blob { name: of_bytes(content), size: content.len() as u64 }
}

fn id(id: &str) -> ImageId {
    ImageId { id: id.to_owned(), layers: "same".to_owned() }
}

/// A copy to hosts, and what each was sent.
struct Copy {
    dir: tempfile::TempDir,
    pushing: Pushing,
    sent: BTreeMap<HostId, UnboundedReceiver<Command>>,
}

impl Copy {
    fn to(hosts: &[&str], dry: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for content in [BASE, TOP, CONFIG] {
            std::fs::write(dir.path().join(of_bytes(content).to_string()), content).unwrap();
        }
        let asked = Asked {
            name: Some("x:1".to_owned()),
            id: id("sha256:1"),
            layers: vec![of_bytes(BASE), of_bytes(TOP)],
            platform: "linux/amd64".to_owned(),
            dry,
            dir: dir.path().to_owned(),
        };
        let (mut to, mut sent) = (Vec::new(), BTreeMap::new());
        for host in hosts {
            let (sender, inbox) = HostSender::of_test();
            to.push((HostId::from(*host), sender, None));
            sent.insert(HostId::from(*host), inbox);
        }
        Self { dir, pushing: Pushing::new(asked, to, Stamp(0)), sent }
    }

    /// What a host was sent since the last look, contents by their text; waits for `count` of them.
    fn sent(&mut self, host: &str, count: usize) -> Vec<String> {
        let inbox = self.sent.get_mut(&HostId::from(host)).unwrap();
        let mut said = Vec::new();
        for _ in 0..1000 {
            while let Ok(Command::Send(message)) = inbox.try_recv() {
                said.push(match *message {
                    ToAgent::Image(ImageAsk::Open(open)) => format!("open {}", open.upload),
                    ToAgent::Image(ImageAsk::Load(load)) => format!(
                        "load {}",
                        load.layers
                            .iter()
                            .map(|one| if one.is_some() { 's' } else { '-' })
                            .collect::<String>()
                    ),
                    ToAgent::Image(ImageAsk::Close(_)) => "close".to_owned(),
                    ToAgent::BlobPiece(piece) => String::from_utf8(piece.data.to_vec()).unwrap(),
                    other => panic!("{other:?}"),
                });
            }
            if said.len() >= count {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        said
    }

    fn told(&mut self, host: &str, state: ImageState) -> Option<News> {
        let host = HostId::from(host);
        let upload = self.pushing.hosts[&host].upload.number();
        self.pushing.told(&host, ImageTold { upload, state }, Stamp(5))
    }

    fn wants(&mut self, host: &str, there: usize, held: Vec<(Digest, u64)>) -> Option<News> {
        self.told(host, ImageState::Wanted { engine: "docker".to_owned(), there, held })
    }

    /// A host has taken all that it was sent.
    fn takes_all(&mut self, host: &str) {
        let host = HostId::from(host);
        let push = &self.pushing.hosts[&host];
        let taken = BlobsTaken { upload: push.upload.number(), taken: push.cost };
        assert_eq!(self.pushing.taken(&host, &taken, Stamp(6)), None);
    }

    fn up(&mut self, host: &str) {
        self.pushing.is_up(&HostId::from(host), Stamp(1));
    }

    fn saved() -> Saved {
        Saved { config: blob(CONFIG), layers: vec![blob(BASE), blob(TOP)] }
    }
}

#[test]
fn each_host_gets_what_it_lacks_as_soon_as_it_was_read() {
    let mut copy = Copy::to(&["a", "b", "c"], false);
    for (number, host) in ["a", "b", "c"].iter().enumerate() {
        copy.up(host);
        assert_eq!(copy.sent(host, 1), [format!("open {}", number + 1)]);
    }
    assert!(!copy.pushing.wants_contents());
    let same = copy.told("c", ImageState::Present { id: id("sha256:of podman"), changed: false });
    assert!(matches!(same, Some((_, Ended::Has { how: How::Before, .. }))), "{same:?}");
    assert_eq!(copy.wants("a", 0, Vec::new()), None);
    assert_eq!(copy.wants("b", 1, vec![(of_bytes(TOP), 1)]), None);
    assert!(copy.pushing.wants_contents());
    assert_eq!(copy.pushing.content(blob(TOP)), []);
    assert_eq!(copy.sent("a", 1), ["top"]);
    assert_eq!(copy.sent("b", 1), ["op"], "from the first byte that it lacks");
    assert_eq!(copy.pushing.content(blob(CONFIG)), []);
    copy.takes_all("b");
    assert_eq!(copy.sent("b", 0), [""; 0], "what belongs to the image is known when all was read");
    assert_eq!(copy.pushing.content(blob(BASE)), []);
    assert_eq!(copy.pushing.saved(Copy::saved()), []);
    assert_eq!(copy.sent("b", 1), ["{}"]);
    copy.takes_all("b");
    assert_eq!(copy.sent("b", 1), ["load -s"]);
    assert_eq!(copy.sent("a", 0), [""; 0], "it has not taken the first one yet");
    copy.takes_all("a");
    assert_eq!(copy.sent("a", 2), ["{}", "base"].map(str::to_owned).to_vec());
    let progress = copy.pushing.progress();
    assert_eq!(
        (progress.copying.to_string(), progress.loading.to_string()),
        ("a".to_owned(), "b".to_owned())
    );
    assert_eq!(progress.whole, Some(3 * 256 + 9 + 2 * 256 + 4));
    copy.takes_all("a");
    assert_eq!(copy.sent("a", 1), ["load ss"]);
    let done = copy.told("a", ImageState::Present { id: id("sha256:1"), changed: true });
    assert!(matches!(done, Some((_, Ended::Has { how: How::Copied { bytes: 777, .. }, .. }))), "{done:?}");
    let other = ImageId { id: "sha256:2".to_owned(), layers: "other".to_owned() };
    let differs = copy.told("b", ImageState::Present { id: other, changed: true });
    assert!(matches!(differs, Some((_, Ended::Failed(Why::Refused(_), _)))), "{differs:?}");
    assert!(copy.pushing.is_over());
}

#[test]
fn a_link_that_comes_back_begins_with_what_is_there() {
    let mut copy = Copy::to(&["a", "b"], false);
    let host = HostId::from("a");
    let never = copy.pushing.is_down(&HostId::from("b"), "connection refused", Stamp(1));
    assert!(matches!(never, Some((_, Ended::Failed(Why::Unreachable, _)))), "{never:?}");
    copy.up("a");
    copy.wants("a", 0, Vec::new());
    copy.pushing.content(blob(BASE));
    assert_eq!(copy.sent("a", 2), ["open 1", "base"]);
    copy.takes_all("a");
    assert_eq!(copy.pushing.is_down(&host, "it is gone", Stamp(7)), None);
    assert_eq!(copy.pushing.progress().lost.to_string(), "a");
    assert_eq!(copy.pushing.look(Stamp(8)), []);
    assert_eq!(copy.pushing.content(blob(TOP)), [], "none is sent anything");
    copy.pushing.content(blob(CONFIG));
    copy.pushing.saved(Copy::saved());
    copy.up("a");
    copy.wants("a", 0, vec![(of_bytes(BASE), 4)]);
    assert_eq!(copy.sent("a", 3), ["open 2", "top", "{}"]);
    copy.takes_all("a");
    assert_eq!(copy.sent("a", 1), ["load ss"]);
    let late = copy.pushing.told(&host, ImageTold { upload: 1, state: ImageState::Waiting }, Stamp(9));
    assert_eq!((late, copy.pushing.progress().loading.count), (None, 1), "of the lost link");
    copy.pushing.is_down(&host, "it is gone", Stamp(10));
    let lost = copy.pushing.look(Stamp(400_000_000));
    let [(_, Ended::Failed(Why::Unreachable, text))] = &lost[..] else { panic!("{lost:?}") };
    assert!(text.starts_with("it is gone; it was lost during the copy"), "{text}");
    assert!(copy.pushing.is_over());
}

#[test]
fn what_can_t_go_on_ends() {
    let mut copy = Copy::to(&["a"], true);
    copy.up("a");
    let lacks = copy.wants("a", 1, Vec::new());
    assert!(matches!(lacks, Some((_, Ended::Lacks { layers: 1, there: 1, .. }))), "{lacks:?}");
    let mut copy = Copy::to(&["a", "b"], false);
    copy.up("a");
    copy.up("b");
    copy.wants("a", 7, Vec::new());
    let other = Saved { config: blob(CONFIG), layers: vec![blob(BASE)] };
    assert_eq!(copy.pushing.saved(other).len(), 1, "no image");
    let late = copy.wants("b", 0, Vec::new());
    assert!(matches!(late, Some((_, Ended::Failed(Why::NotRead, _)))), "{late:?}");
    assert_eq!(copy.sent("a", 2), ["open 1", "close"]);
    let mut copy = Copy::to(&["a", "b"], false);
    copy.up("a");
    copy.up("b");
    copy.wants("a", 0, Vec::new());
    std::fs::write(copy.dir.path().join(of_bytes(TOP).to_string()), b"t").unwrap();
    copy.pushing.content(blob(TOP));
    let failed = (0..1000).find_map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(5));
        Some(copy.pushing.look(Stamp(10))).filter(|news| !news.is_empty())
    });
    assert!(matches!(&failed.unwrap()[..], [(_, Ended::Failed(Why::Unreachable, _))]));
    assert_eq!(copy.pushing.look(Stamp(2_000_000_000)).len(), 1, "b says nothing");
}
