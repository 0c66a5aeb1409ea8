//! The rows of the Cluster screen: where the selected GPU stands beside them, their order, a GPU that does not answer, what
//! is cut and what the footer offers.

use crate::common::world::{FREE, Gpu, Story, busy, cluster, host, press, uuid};
use crate::screens::{COLOR, text};
use std::sync::Arc;

use hvtui::domain::alerts::AlertRules;
use hvtui::domain::event::{Event, Origin};
use hvtui::domain::gpu::event::{GpuEvent, Happening};
use hvtui::domain::gpu::{GpuSample, Reading};
use hvtui::domain::host::{GpuAbsence, GpuAbsenceReason};
use hvtui::tui::canvas::{Caps, ColorDepth};
use hvtui::tui::core::{Effect, Key, KeyCode, Mouse, MouseKind, Msg, Screen};
use hvtui::tui::screens::cluster::rows::{RowId, rows};
use hvtui::tui::screens::cluster::shape::Shape;

fn enter(story: &mut Story) -> Vec<Effect> {
    story.send(Msg::Key(Key::plain(KeyCode::Enter)))
}

fn footer(story: &Story) -> String {
    text(&story.model, COLOR).lines().last().unwrap_or_default().to_owned()
}

fn line_with(story: &Story, word: &str) -> String {
    let text = text(&story.model, COLOR);
    text.lines().find(|line| line.contains(word)).unwrap_or_else(|| panic!("no {word} in\n{text}")).to_owned()
}

/// So many hosts with eight GPUs each; the first GPU of each is idle.
fn many(hosts: usize, size: (u16, u16)) -> Story {
    let names: Vec<String> = (0..hosts).map(|nth| format!("gpu-{nth:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut story = Story::new(&names);
    let mut gpus = [busy(60, "li"); 8];
    gpus[0] = FREE;
    for name in names {
        story.gpu_host(name, 8).sample(name, 1.0, &gpus);
    }
    story.send(Msg::Resize(size.0, size.1));
    story
}

/// The indices of the GPUs of a host as their rows stand.
fn indices(story: &Story, name: &str) -> Vec<usize> {
    let of = host(name);
    let place = |row: &RowId| match row {
        RowId::Gpu(host, _, place) if *host == of => Some(*place),
        _ => None,
    };
    rows(&story.model).iter().filter_map(place).collect()
}

#[test]
fn the_selected_gpu_stands_beside_the_rows_from_160_columns_on() {
    for size in [(160, 50), (200, 50)] {
        let shape = Shape::of(&many(8, size).model);
        assert!(shape.side.is_some() && shape.tables == 1 && !shape.heat, "72 rows on {size:?}: {shape:?}");
    }
    let mut filtered = many(30, (200, 50));
    press(&mut filtered, "/util<5");
    enter(&mut filtered);
    let shape = Shape::of(&filtered.model);
    assert_eq!((shape.side.is_some(), shape.tables), (true, 1), "60 rows pass: {shape:?}");
    press(&mut filtered, "jj");
    assert!(text(&filtered.model, COLOR).contains("processes"), "its processes");
    let shape = Shape::of(&many(16, (200, 50)).model);
    assert_eq!((shape.tables, shape.side), (2, None), "144 rows are more than two screens");
}

#[test]
fn a_pane_below_cells_has_a_title_and_tells_the_health_first() {
    let mut story = many(64, (120, 40));
    story.faults.insert("gpu-00", vec![(1, |gpu: &mut GpuSample| gpu.ecc_uncorrected = Reading::Value(3))]);
    story.sample("gpu-00", 1.0, &[busy(60, "li"); 8]);
    story.send(Msg::Key(Key::plain(KeyCode::Right)));
    assert!(Shape::of(&story.model).heat);
    assert!(line_with(&story, "health").contains("ecc errors"), "{}", text(&story.model, COLOR));
    assert!(line_with(&story, "selected GPU").contains("──"));
}

#[test]
fn gpus_are_ordered_within_their_host_and_the_cursor_stays_on_its_gpu() {
    let mut story = Story::new(&["gpu-a", "gpu-b"]);
    story.gpu_host("gpu-a", 4).gpu_host("gpu-b", 4);
    story.sample("gpu-a", 1.0, &[busy(10, "li"), busy(90, "zhao"), FREE, busy(50, "chen")]);
    story.sample("gpu-b", 1.0, &[FREE, busy(20, "li"), busy(95, "li"), FREE]);
    story.send(Msg::Resize(120, 40));
    press(&mut story, "jj");
    let on = RowId::Gpu(host("gpu-a"), uuid("gpu-a", 1), 1);
    assert_eq!(story.model.ui.cluster.cursor.on, Some(on.clone()));
    // file, name, free GPUs, least busy, free memory, hottest
    press(&mut story, "sssss");
    assert_eq!(story.model.settings.hosts.by.name(), "hottest");
    assert_eq!(rows(&story.model)[0].host(), &host("gpu-b"), "it has the hottest GPU");
    assert_eq!(indices(&story, "gpu-b"), [2, 1, 0, 3]);
    assert_eq!(indices(&story, "gpu-a"), [1, 3, 0, 2]);
    assert_eq!(story.model.ui.cluster.cursor.on, Some(on));
    assert!(text(&story.model, COLOR).contains("hottest"));
    story.model.settings.hosts.reversed = true;
    story.wait_ms(5_000);
    assert_eq!(indices(&story, "gpu-a"), [2, 0, 3, 1]);
    assert!(line_with(&story, "hottest").contains("hottest, reversed"));
}

#[test]
fn nearly_equal_values_do_not_change_places_each_second() {
    let mut story = Story::new(&["gpu-a"]);
    story.gpu_host("gpu-a", 2);
    story.sample("gpu-a", 1.0, &[busy(50, "li"), busy(52, "li")]);
    press(&mut story, "sss");
    assert_eq!(story.model.settings.hosts.by.name(), "least busy");
    assert_eq!(indices(&story, "gpu-a"), [0, 1]);
    for second in 0..20 {
        let noise = 2 * (second % 2);
        story.wait_ms(1_000);
        story.sample("gpu-a", 1.0, &[busy(51 + noise, "li"), busy(53 - noise, "li")]);
        assert_eq!(indices(&story, "gpu-a"), [0, 1], "after {second} s");
    }
    story.sample("gpu-a", 1.0, &[busy(90, "li"), busy(20, "li")]);
    for _ in 0..5 {
        story.wait_ms(1_000);
        story.sample("gpu-a", 1.0, &[busy(90, "li"), busy(20, "li")]);
    }
    assert_eq!(indices(&story, "gpu-a"), [1, 0], "what differs is ordered within seconds");
}

#[test]
fn hosts_without_gpus_stand_last_in_orders_by_values_of_gpus() {
    let mut story = Story::new(&["cpu-a", "gpu-a"]);
    story.cpu_host("cpu-a", 192).sample("cpu-a", 1.0, &[]);
    story.gpu_host("gpu-a", 2).sample("gpu-a", 1.0, &[busy(50, "li"), busy(52, "li")]);
    for _ in 0..12 {
        press(&mut story, "s");
        let name = story.model.settings.hosts.by.name();
        let first = rows(&story.model)[0].host().clone();
        if !matches!(name, "hosts file" | "name") {
            assert_eq!(first, host("gpu-a"), "by {name}");
        }
    }
}

#[test]
fn each_head_orders_by_its_column() {
    let mut story = cluster();
    story.faults.insert("gpu-b", vec![(5, |gpu: &mut GpuSample| gpu.ecc_uncorrected = Reading::Value(3))]);
    story.sample("gpu-b", 1.0, &[busy(60, "li"), busy(60, "chen"), FREE, FREE, FREE, FREE, FREE, FREE]);
    story.send(Msg::Resize(200, 60));
    for (head, name) in
        [("HEALTH", "worst health"), ("USER", "user"), ("MODEL", "model"), ("COMMAND", "command")]
    {
        let heads = line_with(&story, "HEALTH");
        let column = heads[..heads.find(head).unwrap()].chars().count() as u16;
        story.send(Msg::Mouse(Mouse { kind: MouseKind::Click, column, row: 2 }));
        assert_eq!(story.model.settings.hosts.by.name(), name);
        let first = indices(&story, "gpu-b")[0];
        match head {
            "HEALTH" => assert_eq!((rows(&story.model)[0].host(), first), (&host("gpu-b"), 5)),
            "USER" => assert_eq!(indices(&story, "gpu-b")[..2], [1, 0], "chen before li"),
            _ => {}
        }
    }
}

#[test]
fn a_gpu_that_does_not_answer_keeps_its_last_values_with_their_age() {
    let mut story = Story::new(&["gpu-a"]);
    story.gpu_host("gpu-a", 2);
    story.sample("gpu-a", 1.0, &[busy(50, "li"), busy(73, "wang")]);
    story.send(Msg::Resize(120, 40));
    for _ in 0..46 {
        story.wait_ms(1_000);
        story.faults.insert(
            "gpu-a",
            vec![(1, |gpu: &mut GpuSample| {
                *gpu = GpuSample::failed(1, "no answer from NVML for 9 s");
            })],
        );
        story.sample("gpu-a", 1.0, &[busy(50, "li"), busy(73, "wang")]);
    }
    let row = line_with(&story, "no answer 46 s");
    assert!(row.contains("73 %") && row.contains("131/141 G") && row.contains("wang"), "{row}");
    press(&mut story, "jj");
    enter(&mut story);
    let detail = text(&story.model, COLOR);
    assert!(detail.contains("last answer 46 s ago") && detail.contains("73 %"), "{detail}");
    assert!(!detail.contains("sampled 0 s ago") && !detail.contains("health    ok"), "{detail}");
    story.faults.clear();
    story.sample("gpu-a", 1.0, &[busy(50, "li"), busy(12, "wang")]);
    assert!(!text(&story.model, COLOR).contains("no answer"));
}

#[test]
fn a_host_says_how_many_of_its_gpus_are_free() {
    let mut story = cluster();
    for size in [(80, 24), (120, 40), (200, 60)] {
        story.send(Msg::Resize(size.0, size.1));
        let row = line_with(&story, "▾gpu-b");
        assert!(row.contains("free 6/8"), "{size:?}: {row}");
    }
    story.wait_ms(5_000);
    story.send(Msg::Resize(80, 24));
    assert!(line_with(&story, "▾gpu-b").contains("6 s old"), "{}", text(&story.model, COLOR));
    // with names so long that COMMAND is left out
    let name = "gpu-node-with-name";
    let mut story = Story::new(&[name]);
    story.gpu_host(name, 8).sample(name, 1.0, &[FREE; 8]);
    story.send(Msg::Resize(80, 24));
    assert!(!text(&story.model, COLOR).contains("COMMAND"));
    assert!(line_with(&story, "▾gpu-node").contains("free 8/8"), "{}", text(&story.model, COLOR));
    story.wait_ms(5_000);
    let row = line_with(&story, "▾gpu-node");
    assert!(row.contains("5 s old"), "{row}");
    let cells = many(30, (160, 30));
    assert!(Shape::of(&cells.model).heat);
    assert!(line_with(&cells, "gpu-03").contains("free 1/8"), "{}", text(&cells.model, COLOR));
}

#[test]
fn cells_count_the_free_gpus_of_a_host_among_all_of_it() {
    let mut story = many(2, (120, 40));
    press(&mut story, "/util>50");
    enter(&mut story);
    assert!(line_with(&story, "gpu-01").contains("free 1/8"), "{}", text(&story.model, COLOR));
    press(&mut story, "H");
    if !Shape::of(&story.model).heat {
        press(&mut story, "H");
    }
    let row = line_with(&story, "gpu-01");
    assert!(row.contains("free 1/8") && !row.contains('·'), "{}", text(&story.model, COLOR));
}

#[test]
fn a_throttled_gpu_is_no_fault_where_no_colour_tells_them_apart() {
    let mut story = cluster();
    let plain = Caps { color: ColorDepth::None, ascii: false };
    story.send(Msg::Resize(80, 24));
    press(&mut story, "H");
    if !Shape::of(&story.model).heat {
        press(&mut story, "H");
    }
    let line = |story: &Story, caps, words: &str| {
        let screen = text(&story.model, caps);
        screen.lines().find(|line| line.contains(words)).unwrap_or_else(|| panic!("{screen}")).to_owned()
    };
    let row = line(&story, plain, "gpu-a");
    assert!(row.contains("gpu-a !") && !row.contains('×'), "{row}");
    assert!(line(&story, plain, "× fault").contains("! to check"));
    assert!(!line(&story, COLOR, "gpu-a").contains('!') && !line(&story, COLOR, "× fault").contains('!'));
    story.faults.insert("gpu-a", vec![(0, |gpu: &mut GpuSample| gpu.ecc_uncorrected = Reading::Value(3))]);
    story.sample("gpu-a", 1.0, &[busy(60, "li"); 8]);
    assert!(line(&story, plain, "gpu-a").contains("gpu-a ×"), "{}", line(&story, plain, "gpu-a"));
}

#[test]
fn the_utilisation_has_one_head_in_each_width() {
    let mut cpus = Story::new(&["login-node-with-a-long-name", "b"]);
    for name in ["login-node-with-a-long-name", "b"] {
        cpus.cpu_host(name, 64).sample(name, 100.0, &[]);
    }
    let mut gpus = Story::new(&["gpu-node-with-a-long-name"]);
    gpus.gpu_host("gpu-node-with-a-long-name", 1);
    gpus.sample("gpu-node-with-a-long-name", 1.0, &[busy(100, "li")]);
    for columns in 60..=200 {
        for (story, head) in [(&mut cpus, "CPU"), (&mut gpus, "UTIL")] {
            story.send(Msg::Resize(columns, 24));
            let heads = line_with(story, "HOST").replace("CPU SLOTS", "");
            assert!(text(&story.model, COLOR).contains("100 %"), "{}", text(&story.model, COLOR));
            let count = heads.split_whitespace().filter(|word| *word == head).count();
            assert_eq!(count, 1, "{columns} columns\n{}", text(&story.model, COLOR));
        }
    }
}

#[test]
fn more_than_one_fault_is_counted_where_the_worst_has_many_letters() {
    let mut story = cluster();
    story.faults.insert(
        "gpu-b",
        vec![(0, |gpu: &mut GpuSample| {
            gpu.ecc_uncorrected = Reading::Value(3);
            gpu.row_remap_pending = Reading::Value(true);
        })],
    );
    story.sample("gpu-b", 1.0, &[busy(60, "li"); 8]);
    for size in [(80, 24), (120, 40), (200, 60)] {
        story.send(Msg::Resize(size.0, size.1));
        assert!(text(&story.model, COLOR).contains("ecc error +"), "{}", text(&story.model, COLOR));
    }
}

#[test]
fn the_count_of_what_is_below_covers_no_row() {
    for size in [(80, 24), (120, 40)] {
        let mut story = many(8, size);
        let shape = Shape::of(&story.model);
        let lines: Vec<String> = text(&story.model, COLOR).lines().map(str::to_owned).collect();
        let last = &lines[usize::from(shape.y + shape.lines) - 1];
        assert!(!last.contains("more"), "{last}");
        assert!(lines[1].contains("↓ ") && lines[1].contains(" more GPUs"), "{}", lines[1]);
        press(&mut story, "G");
        let above = text(&story.model, COLOR).lines().nth(1).unwrap().to_owned();
        assert!(above.contains("↑ ") && !above.contains("↓ ") && above.contains(" more GPUs"), "{above}");
    }
}

#[test]
fn words_that_do_not_fit_are_left_out_whole() {
    let mut story = Story::new(&["gpu-a", "cpu-a"]);
    story.gpu_host("gpu-a", 2).sample("gpu-a", 1.0, &[FREE, FREE]);
    story.cpu_host("cpu-a", 192).sample("cpu-a", 1.0, &[]);
    for columns in [80, 90, 100, 120] {
        story.send(Msg::Resize(columns, 24));
        let row = line_with(&story, "CPU slots");
        let model = row.split("CPU slots").next().unwrap();
        assert!(!model.contains('…'), "{row}");
    }
    let cells = many(90, (80, 24));
    let legend = text(&cells.model, COLOR).lines().nth(2).unwrap().to_owned();
    assert!(legend.contains("of 90") && !legend.contains('…'), "{legend}");
}

#[test]
fn a_range_is_shown_while_it_lasts() {
    let mut story = cluster();
    press(&mut story, "jvj");
    story.wait_ms(60_000);
    let line = text(&story.model, COLOR).lines().nth(1).unwrap().to_owned();
    assert!(line.contains("range of 2 GPUs") && line.contains("esc"), "{line}");
    story.send(Msg::Key(Key::plain(KeyCode::Esc)));
    assert!(!text(&story.model, COLOR).contains("range of"));
}

#[test]
fn the_footer_offers_what_does_something_here() {
    let mut story = cluster();
    let foot = footer(&story);
    assert!(foot.contains("enter detail") && foot.contains("? help"), "{foot}");
    story.model.demo = true;
    assert!(footer(&story).contains("enter detail"));
    story.send(Msg::Resize(120, 40));
    assert!(footer(&story).contains("z fold") && footer(&story).contains("H layout"));
    press(&mut story, "H");
    if !Shape::of(&story.model).heat {
        press(&mut story, "H");
    }
    let foot = footer(&story);
    assert!(!foot.contains("z fold") && foot.contains("H layout"), "{foot}");
    press(&mut story, "G");
    enter(&mut story);
    assert_eq!(story.model.ui.screen, Screen::Detail);
    assert!(!footer(&story).contains("signal"), "no process: {}", footer(&story));
}

#[test]
fn a_signal_from_the_cluster_goes_to_the_process_of_the_gpu() {
    let mut story = cluster();
    press(&mut story, "j");
    let effects = press(&mut story, "K");
    assert_eq!(story.model.ui.screen, Screen::Detail);
    assert!(matches!(effects[..], [Effect::Signal { .. }]), "its only process: {effects:?}");
    let mut story = cluster();
    press(&mut story, "K");
    assert_eq!(story.model.ui.screen, Screen::Detail);
    let told = story.model.ui.toasts.back().unwrap().text.clone();
    assert!(told.contains("select a process"), "{told}");
    let mut story = cluster();
    press(&mut story, "jjjK");
    assert_eq!(story.model.ui.screen, Screen::Cluster);
    let told = story.model.ui.toasts.back().unwrap().text.clone();
    assert!(told.contains("gpu-a:2 has no process"), "{told}");
}

#[test]
fn the_processes_of_a_host_are_listed_though_one_gpu_does_not_tell_them() {
    let mut story = cluster();
    story.faults.insert(
        "gpu-a",
        vec![(6, |gpu: &mut GpuSample| gpu.processes = Reading::failed("insufficient permissions"))],
    );
    let gpu = Gpu { ..busy(50, "li") };
    story.sample("gpu-a", 1.0, &[gpu, gpu, FREE, FREE, FREE, FREE, FREE, FREE]);
    story.send(Msg::Resize(120, 40));
    enter(&mut story);
    let detail = text(&story.model, COLOR);
    assert!(detail.contains("GPU 6: insufficient permissions"), "{detail}");
    assert!(detail.contains("python train.py"), "{detail}");
}

#[test]
fn a_loss_has_one_moment_in_each_row() {
    let mut story = many(2, (120, 40));
    story.wait_ms(9_000);
    story.sample("gpu-00", 1.0, &[busy(60, "li"); 8]);
    story.down("gpu-01", "gpu-01: no word for 6 s");
    let screen = text(&story.model, COLOR).replace('\u{a0}', " ");
    let row = screen.lines().find(|line| line.contains("✖gpu-01")).unwrap();
    assert!(row.contains("down since 14:30 (9 s): no word for 6 s"), "{screen}");
    assert!(!row.contains("last seen"), "{row}");
    assert_eq!(screen.lines().filter(|line| line.contains("9 s old")).count(), 8, "{screen}");
    let state = &story.model.world.hosts[&host("gpu-01")];
    assert_eq!(state.down_since, Some(state.latest().unwrap().0));
}

#[test]
fn a_burst_ends_neither_row_nor_count_nor_alert_of_a_held_gpu() {
    let held = Gpu { util: 0, ..busy(0, "wang") };
    let mut story = Story::new(&["gpu-a"]);
    story.gpu_host("gpu-a", 1);
    story.model.world.alerts.rules =
        Arc::new(AlertRules { held_idle_us: Some(30_000_000), ..AlertRules::default() });
    story.send(Msg::Resize(120, 40));
    let told = |story: &Story| {
        let screen = text(&story.model, COLOR);
        let row = screen.lines().find(|line| line.contains("python")).unwrap_or_default().to_owned();
        (row, screen.contains("1 held idle"), story.model.world.alerts.active().count())
    };
    for _ in 0..33 {
        story.sample("gpu-a", 1.0, &[held]);
        story.wait_ms(1_000);
    }
    let (row, counted, alerts) = told(&story);
    assert!(row.contains("idle 32 s") && counted && alerts == 1, "{row}");
    for _ in 0..9 {
        story.sample("gpu-a", 1.0, &[busy(40, "wang")]);
        story.wait_ms(1_000);
    }
    let (row, counted, alerts) = told(&story);
    assert!(row.contains("idle 33 s") && counted && alerts == 1, "{row}");
    for _ in 0..3 {
        story.sample("gpu-a", 1.0, &[busy(40, "wang")]);
        story.wait_ms(1_000);
    }
    let (row, counted, alerts) = told(&story);
    assert!(!row.contains("idle") && !counted && alerts == 0, "{row}");
}

#[test]
fn a_gpu_that_has_fallen_off_the_bus_is_not_free() {
    let mut story = many(1, (120, 40));
    story.sample("gpu-00", 1.0, &[FREE; 8]);
    for (index, xid) in [(2, 79), (3, 48)] {
        let what = Happening::Xid { xid };
        let event = GpuEvent { index, uuid: uuid("gpu-00", index), what, count: 1, t: None };
        story.tell(Origin::Host(host("gpu-00")), Event::GpuHappened { event });
    }
    let screen = text(&story.model, COLOR);
    assert!(screen.contains("8 GPUs: 7 free") && screen.contains("free 7/8"), "{screen}");
    assert!(!line_with(&story, "xid 79").contains("free"), "{screen}");
    assert!(line_with(&story, "xid 48").contains("free"), "at risk, and free:\n{screen}");
    press(&mut story, "f8");
    enter(&mut story);
    assert_eq!(story.model.ui.cluster.picked(), 7, "{}", text(&story.model, COLOR));
    assert!(!story.model.ui.cluster.is_picked(&host("gpu-00"), &uuid("gpu-00", 2)));
}

#[test]
fn a_host_counts_the_gpus_that_have_other_faults_than_the_worst() {
    let mut story = many(1, (120, 40));
    story.faults.insert(
        "gpu-00",
        vec![
            (1, |gpu: &mut GpuSample| *gpu = GpuSample::failed(1, "GPU is lost")),
            (2, |gpu: &mut GpuSample| gpu.ecc_uncorrected = Reading::Value(3)),
            (3, |gpu: &mut GpuSample| gpu.row_remap_failed = Reading::Value(true)),
        ],
    );
    story.sample("gpu-00", 1.0, &[busy(60, "li"); 8]);
    assert!(line_with(&story, "▾gpu-00").contains("1 failing +2"), "{}", text(&story.model, COLOR));
}

#[test]
fn the_first_row_that_is_seen_names_its_host() {
    let mut story = many(8, (80, 24));
    press(&mut story, "G");
    let screen = text(&story.model, COLOR);
    let first = screen.lines().nth(3).unwrap();
    assert!(first.starts_with("  gpu-0") && first.contains("131/141 G"), "{screen}");
}

/// A host whose driver is broken, and one that is not reached, among `hosts`.
fn broken(hosts: usize, size: (u16, u16)) -> Story {
    let mut story = many(hosts, size);
    let mut info = story.model.world.hosts[&host("gpu-01")].info.as_deref().unwrap().clone();
    info.gpus = Vec::new();
    let reason = GpuAbsenceReason::DriverMismatch;
    info.gpu_absence = Some(GpuAbsence { reason, detail: "driver 550.54 loaded".to_owned() });
    story.tell(Origin::Host(host("gpu-01")), Event::HostDescribed { info: Arc::new(info) });
    story
}

#[test]
fn a_host_with_a_broken_driver_is_marked() {
    let story = broken(2, (120, 40));
    let row = line_with(&story, "⚠gpu-01");
    assert!(row.contains("no GPU data: driver"), "{row}");
    let cells = broken(30, (80, 24));
    assert!(Shape::of(&cells.model).heat);
    assert!(line_with(&cells, "gpu-01").contains("gpu-01 ⚠ no GPU"), "{}", text(&cells.model, COLOR));
    let names: Vec<String> = (0..40).map(|nth| format!("gpu-{nth:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut lost = Story::new(&names);
    for name in &names[1..] {
        lost.gpu_host(name, 8).sample(name, 1.0, &[FREE; 8]);
    }
    lost.down("gpu-00", "gpu-00: no route to host").send(Msg::Resize(80, 24));
    assert!(line_with(&lost, "gpu-00").contains("gpu-00 ✖ down"), "{}", text(&lost.model, COLOR));
}

#[test]
fn processes_stand_under_the_heads_of_their_user() {
    let mut story = cluster();
    for size in [(80, 24), (120, 40)] {
        story.send(Msg::Resize(size.0, size.1));
        if story.model.ui.screen != Screen::Users {
            press(&mut story, "u");
            enter(&mut story);
        }
        let screen = text(&story.model, COLOR);
        let heads: Vec<char> = line_with(&story, "HELD, IDLE").chars().collect();
        let row: Vec<char> = line_with(&story, "pid 4").chars().collect();
        let end = |head: &str| {
            let heads: String = heads.iter().collect();
            heads[..heads.find(head).unwrap() + head.len()].chars().count()
        };
        let under = |head: &str| row[..end(head)].iter().collect::<String>();
        assert!(under("MEM").ends_with(" G"), "{screen}");
        assert!(under("UTIL").ends_with(" %"), "{screen}");
        assert!(under("SINCE").ends_with("h14") || under("SINCE").ends_with("h15"), "{screen}");
        assert!(under("GPUS").contains("gpu-"), "{screen}");
    }
}
