//! What happens to GPUs and how they are connected, on the screens and in a recording.

use std::sync::Arc;

use crate::common::world::{FREE, Story, busy, key, press, uuid};
use hvtui::domain::event::{Event, Origin};
use hvtui::domain::gpu::Reading;
use hvtui::domain::gpu::event::{GpuEvent, Happening};
use hvtui::domain::gpu::topology::{Affinity, Path, Topology};
use hvtui::domain::host::HostInfo;
use hvtui::domain::ids::HostId;
use hvtui::domain::time::HostTime;
use hvtui::tui::canvas::{Caps, ColorDepth};
use hvtui::tui::core::{Effect, KeyCode, Level};
use hvtui::tui::screens::view::draw;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

const CAPS: Caps = Caps { color: ColorDepth::None, ascii: false };

fn screen(story: &Story) -> String {
    let (columns, rows) = story.model.size;
    let mut buf = Buffer::empty(Rect::new(0, 0, columns, rows));
    draw(&story.model, CAPS, &mut buf);
    let lines = buf.content.chunks(usize::from(columns));
    lines.map(|line| line.iter().map(ratatui::buffer::Cell::symbol).collect::<String>() + "\n").collect()
}

/// The line that begins with these words.
fn line<'a>(screen: &'a str, begins: &str) -> &'a str {
    let found = screen.lines().find(|line| line.trim_start_matches(['▌', ' ']).starts_with(begins));
    found.unwrap_or_else(|| panic!("no line begins with {begins}:\n{screen}"))
}

fn host() -> Story {
    let mut story = Story::new(&["gpu-a"]);
    story.model.size = (140, 40);
    story.gpu_host("gpu-a", 4);
    story.sample("gpu-a", 10.0, &[busy(90, "li"), FREE, FREE, FREE]);
    story
}

fn happens(story: &mut Story, index: u32, what: Happening) {
    let event = GpuEvent { index, uuid: uuid("gpu-a", index), what, count: 1, t: Some(HostTime(1)) };
    story.tell(Origin::Host(HostId::from("gpu-a")), Event::GpuHappened { event });
}

#[test]
fn an_xid_error_is_in_the_health_of_its_gpu_until_it_is_acknowledged() {
    let mut story = host();
    happens(&mut story, 2, Happening::Xid { xid: 79 });
    let toast = story.model.ui.toasts.back().unwrap();
    assert_eq!(toast.level, Level::Error);
    assert_eq!(toast.text, "gpu-a:2 xid 79: the GPU has fallen off the bus");
    let shown = screen(&story);
    assert!(line(&shown, "2 ").contains("xid 79"), "{shown}");
    assert!(line(&shown, "1 ").contains("ok"), "{shown}");
    assert!(line(&shown, "▾gpu-a").contains("1 at risk"), "{shown}");

    // On another GPU: not meant.
    let is_told =
        |effect: &Effect| matches!(effect, Effect::Acknowledge(all) if all.contains_key(&uuid("gpu-a", 2)));
    assert!(!press(&mut story, "jC").iter().any(is_told));
    assert!(line(&screen(&story), "2 ").contains("xid 79"));
    let told = press(&mut story, "jjC");
    assert!(told.iter().any(is_told), "launches go by it, too: {told:?}");
    let shown = screen(&story);
    assert!(line(&shown, "2 ").contains("off bus") && !line(&shown, "2 ").contains("ok"), "{shown}");
    assert!(!shown.contains("▲"), "{shown}");
    press(&mut story, "E");
    let events = screen(&story);
    let told = events.lines().find(|line| line.contains("✔")).unwrap_or_else(|| panic!("{events}"));
    assert!(events.contains("0 active") && told.trim_end().ends_with("acknowledged"), "{events}");
    key(&mut story, KeyCode::Esc);
    assert!(line(&shown, "▾gpu-a").contains("free 2/4"), "off the bus it is not free: {shown}");
    assert!(line(&shown, "▾gpu-a").contains(" ok "), "{shown}");

    story.wait_ms(1000);
    happens(&mut story, 2, Happening::Xid { xid: 79 });
    assert!(line(&screen(&story), "2 ").contains("xid 79"), "what comes after it is new");
    assert!(screen(&story).contains("▲ 1 "), "{}", screen(&story));
    press(&mut story, "\n");
    let detail = screen(&story);
    assert!(detail.contains("xid 79 ×2: the GPU has fallen off the bus · reboot the host"), "{detail}");
    assert!(line(&detail, "health").contains("xid 79"), "{detail}");
    press(&mut story, "C");
    assert!(!screen(&story).contains("health    xid 79"), "what happened stays told, as no fault");
    assert!(screen(&story).contains("xid 79 ×2"));
}

#[test]
fn what_two_samples_tell_is_an_event_too() {
    let mut story = host();
    story.faults.insert("gpu-a", vec![(1, |gpu| gpu.row_remap_pending = Reading::Value(true))]);
    story.sample("gpu-a", 10.0, &[busy(90, "li"), FREE, FREE, FREE]);
    let state = &story.model.world.hosts[&HostId::from("gpu-a")];
    let told: Vec<String> =
        state.gpu_events.newest().map(hvtui::domain::gpu::event::SeenEvent::words).collect();
    assert_eq!(told, ["remap due: a row of memory will be remapped"]);
    assert!(line(&screen(&story), "1 ").contains("remap due "), "once, not twice");
}

#[test]
fn the_topology_stands_on_the_host_and_as_a_matrix_where_there_is_room() {
    let mut story = host();
    let state = &story.model.world.hosts[&HostId::from("gpu-a")];
    let path = |a: usize, b: usize| match (a, b) {
        _ if a == b => Path::Own,
        _ if a / 2 == b / 2 => Path::NvLink(4),
        _ => Path::System,
    };
    let near = |gpu: usize| Affinity { cpus: Some("0-47".to_owned()), numa_node: Some(gpu as u32 / 2) };
    let topology = Topology {
        paths: (0..4).map(|a| (0..4).map(|b| path(a, b)).collect()).collect(),
        affinity: (0..4).map(near).collect(),
    };
    let info = HostInfo { topology: Some(topology), ..(**state.info.as_ref().unwrap()).clone() };
    story.tell(Origin::Host(HostId::from("gpu-a")), Event::HostDescribed { info: Arc::new(info) });
    press(&mut story, "\n");
    let shown = screen(&story);
    let summary =
        "topology: closest by 4 NVLinks, farthest by the link between NUMA nodes · together: 0-1 | 2-3";
    assert!(shown.contains(summary), "{shown}");
    assert!(line(&shown, "GPU2").contains("SYS  SYS    X  NV4      1  0-47"), "{shown}");
    story.model.size = (80, 20);
    let shown = screen(&story);
    assert!(!shown.contains("GPU2 "), "no half matrix:\n{shown}");
    assert!(shown.contains("the matrix of the GPUs needs"), "{shown}");
}
