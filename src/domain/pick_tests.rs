use proptest::prelude::*;

use super::*;

/// Nothing is known of the links.
fn unknown_closeness(_: &HostId, _: u32, _: u32) -> u32 {
    0
}

/// `gpu-a: H200 0 1! 2; gpu-b: A100 0 3`; a model holds until the next one, `!` stands behind what is at risk; from 100 on they are
/// MIG slices.
fn offers(text: &str) -> Vec<Offer> {
    let offer = |text: &str| {
        let (host, gpus) = text.split_once(':').unwrap();
        let host = HostId::from(host.trim());
        let mut model = String::new();
        let mut of = Vec::new();
        for word in gpus.split_whitespace() {
            match word.trim_end_matches('!').parse() {
                Ok(index) => of.push(Candidate {
                    is_at_risk: word.ends_with('!'),
                    index,
                    uuid: GpuUuid::from(
                        format!("{}-{host}-{index}", if index >= 100 { "MIG" } else { "GPU" }).as_str(),
                    ),
                    model: model.clone(),
                }),
                Err(_) => model = word.to_owned(),
            }
        }
        Offer { host, gpus: of }
    };
    text.split(';').filter(|text| !text.trim().is_empty()).map(offer).collect()
}

fn chosen(text: &str, count: usize) -> String {
    beside(text, "", count)
}

fn beside(text: &str, picked: &str, count: usize) -> String {
    let picked = offers(picked);
    let request =
        GpuRequest { count, per_host: None, unit: 1, beside: &picked, closeness: &unknown_closeness };
    said(choose(&offers(text), &request))
}

fn said(choice: Option<Choice>) -> String {
    choice
        .map_or_else(|| "not enough".to_owned(), |choice| format!("{} = {}", choice.places(), choice.words()))
}

#[test]
fn mig_slices_never_fill_up_whole_gpus() {
    let three = "a: H200 0 1; b: H200 0 1 2!; c: H200 0 1 2 1g 400";
    assert_eq!(chosen(three, 3), "c:0,1,2 = 3 of c (H200)");
    assert_eq!(chosen("a: H200 0 1; c: H200 0 1 2! 1g 400", 4), "a:0,1;c:0,1 = 4 on 2 hosts, 2 each (H200)");
    assert_eq!(chosen("c: H200 0 1 2! 1g 400", 3), "c:0,1,2 = 3 of c (H200), at risk: c:2");
    assert_eq!(chosen("c: H200 0 1 2 1g 400", 4), "not enough");
    assert_eq!(chosen("c: H200 0 1g 400 401", 2), "c:400,401 = 2 of c (1g)", "slices alone");
    assert_eq!(beside("c: H200 0 1g 401", "c: 1g 400", 1), "c:401 = 1 of c (1g)", "beside a slice");
    assert_eq!(beside("c: 1g 400", "c: H200 0", 1), "not enough", "beside a whole one");
    assert_eq!(beside("c: H200 0", "c: 1g 400", 1), "not enough");
}

#[test]
fn at_most_all_of_one_sort_are_chosen() {
    let most_of = |text: &str, picked: &str| most(&offers(text), &offers(picked));
    let mixed = "a: H200 0 1; c: H200 0 1g 400";
    assert_eq!(most_of(mixed, ""), 3);
    assert_eq!(most_of("c: H200 0 1g 400 401", ""), 2, "slices alone");
    assert_eq!(most_of(mixed, "c: 1g 401"), 1, "beside a slice");
    assert_eq!(most_of("c: 1g 400", "c: H200 0"), 0, "beside a whole one");
    assert_eq!(most_of(mixed, "c: H200 1 1g 401"), 3, "both are picked");
    for picked in ["", "c: 1g 401", "c: H200 1 1g 401"] {
        let count = most_of(mixed, picked);
        assert_ne!(beside(mixed, picked, count), "not enough", "{picked}");
        assert_eq!(beside(mixed, picked, count + 1), "not enough", "{picked}");
    }
}

#[test]
fn what_is_at_risk_is_taken_where_there_are_too_few_others() {
    let two = "a: H200 0! 1 2; b: H200 0 1 2";
    assert_eq!(chosen(two, 2), "a:1,2 = 2 of a (H200)");
    assert_eq!(chosen(two, 3), "b:0,1,2 = 3 of b (H200)");
    assert_eq!(chosen(two, 4), "a:1,2;b:0,1 = 4 on 2 hosts, 2 each (H200)");
    assert_eq!(chosen(two, 6), "a:0,1,2;b:0,1,2 = 6 on 2 hosts, 3 each (H200), at risk: a:0");
    assert_eq!(chosen("a: H200 0!", 1), "a:0 = 1 of a (H200), at risk: a:0");
    let half = "a: H200 0! 1! 2! 3! 4 5 6 7";
    assert_eq!(chosen(half, 5), "a:3,4,5,6,7 = 5 of a (H200), at risk: a:3", "as few as possible");
    assert_eq!(chosen("a: H200 0! 1! 2!; b: H200 0! 1 2", 3), "b:0,1,2 = 3 of b (H200), at risk: b:0");
}

#[test]
fn one_host_comes_before_one_model_and_equal_numbers() {
    let three = "a: H200 0 1; b: A100 0 H200 1 2; c: A100 0 1 2 3";
    assert_eq!(chosen(three, 2), "a:0,1 = 2 of a (H200)");
    assert_eq!(chosen(three, 3), "c:0,1,2 = 3 of c (A100)", "one host, one model");
    assert_eq!(chosen(three, 4), "c:0,1,2,3 = 4 of c (A100)");
    assert_eq!(chosen("a: H200 0 1; b: A100 0 H200 1 2", 3), "b:0,1,2 = 3 of b (A100 and H200)", "one host");
    assert_eq!(
        chosen("a: H200 0 1 2; b: H200 0 1 2; c: A100 0 1 2", 6),
        "a:0,1,2;b:0,1,2 = 6 on 2 hosts, 3 each (H200)"
    );
    assert_eq!(
        chosen("a: H200 0 1 2 3; b: H200 0 1 2; c: H200 0 1", 6),
        "a:0,1,2;b:0,1,2 = 6 on 2 hosts, 3 each (H200)",
        "equal before filling the first"
    );
    assert_eq!(chosen("a: H200 0; b: A100 0; c: A100 0", 2), "b:0;c:0 = 2 on 2 hosts, 1 each (A100)");
    assert_eq!(
        chosen("a: H200 0 1; b: A100 0", 3),
        "a:0,1;b:0 = 3 on 2 hosts: 2 of a, 1 of b (A100 and H200)"
    );
}

#[test]
fn numbers_are_equal_unless_that_takes_far_more_hosts() {
    let uneven = "a: H200 0 1 2 3; b: H200 0 1; c: H200 0 1";
    assert_eq!(chosen(uneven, 6), "a:0,1;b:0,1;c:0,1 = 6 on 3 hosts, 2 each (H200)");
    let many: Vec<String> = (0..7).map(|host| format!("h{host}: H200 0 1 2 3")).collect();
    assert_eq!(
        chosen(&many.join(";"), 7),
        "h0:0,1,2,3;h1:0,1,2 = 7 on 2 hosts: 4 of h0, 3 of h1 (H200)",
        "not 1 of 7 hosts"
    );
    assert_eq!(chosen(uneven, 9), "not enough");
    assert_eq!(chosen(uneven, 0), "not enough");
    assert_eq!(chosen("", 1), "not enough");
}

#[test]
fn picks_that_are_there_decide_between_equals() {
    let two = "a: H200 0 1; b: H200 2 3; c: A100 0 1";
    assert_eq!(beside(two, "b: H200 0 1", 2), "b:2,3 = 2 of b (H200)");
    assert_eq!(beside(two, "d: A100 0", 2), "c:0,1 = 2 of c (A100)");
    assert_eq!(beside("a: H200 0 1; b: A100 0; c: A100 0", "x: A100 0", 1), "b:0 = 1 of b (A100)");
}

#[test]
fn adjacent_gpus_are_taken_and_linked_ones_before_them() {
    assert_eq!(chosen("a: H200 0 2 3 4 7", 3), "a:2,3,4 = 3 of a (H200)");
    assert_eq!(chosen("a: H200 0 3 6; b: H200 1 2 5", 2), "b:1,2 = 2 of b (H200)");
    // Two islands: 0 2 4 6 and 1 3 5 7.
    let islands = |_: &HostId, a: u32, b: u32| if a % 2 == b % 2 { NVLINK + 1 } else { 3 };
    let request = |count| GpuRequest { count, per_host: None, unit: 1, beside: &[], closeness: &islands };
    let of = |text: &str, count| said(choose(&offers(text), &request(count)));
    assert_eq!(of("a: H200 0 1 2 3 4 5 6 7", 4), "a:0,2,4,6 = 4 of a (H200, one NVLink island)");
    assert_eq!(of("a: H200 0 1 2; b: H200 1 3 5", 3), "b:1,3,5 = 3 of b (H200, one NVLink island)");
    assert_eq!(of("a: H200 0 1", 2), "a:0,1 = 2 of a (H200)", "no claim where there is no link");
    assert_eq!(
        of("a: H200 0 2; b: H200 1 3", 4),
        "a:0,2;b:1,3 = 4 on 2 hosts, 2 each (H200, one NVLink island on each)"
    );
}

#[test]
fn so_many_on_each_host_is_kept_to() {
    let of = |text: &str, count, each| {
        let request =
            GpuRequest { count, per_host: Some(each), unit: 1, beside: &[], closeness: &unknown_closeness };
        said(choose(&offers(text), &request))
    };
    let text = "a: H200 0 1 2 3; b: H200 0 1; c: A100 0 1";
    assert_eq!(of(text, 4, 2), "a:0,1;b:0,1 = 4 on 2 hosts, 2 each (H200)");
    assert_eq!(of(text, 6, 2), "a:0,1;b:0,1;c:0,1 = 6 on 3 hosts, 2 each (A100 and H200)");
    assert_eq!(of(text, 4, 4), "a:0,1,2,3 = 4 of a (H200)");
    assert_eq!(of(text, 8, 4), "not enough");
    assert_eq!(of(text, 3, 2), "not enough");
}

#[test]
fn each_host_gives_a_multiple_of_what_a_rank_takes() {
    let of = |text: &str, count| {
        let request =
            GpuRequest { count, per_host: None, unit: 2, beside: &[], closeness: &unknown_closeness };
        said(choose(&offers(text), &request))
    };
    assert_eq!(of("a: H200 0 1 2; b: H200 0 1 2", 4), "a:0,1;b:0,1 = 4 on 2 hosts, 2 each (H200)");
    assert_eq!(of("a: H200 0 1 2; b: H200 0 1 2", 6), "not enough", "3 and 3 would not do");
    assert_eq!(
        of("a: H200 0 1 2 3 4; b: H200 0 1 2", 6),
        "a:0,1,2,3;b:0,1 = 6 on 2 hosts: 4 of a, 2 of b (H200)"
    );
}

proptest! {
    #[test]
    fn what_is_chosen_was_offered_once_and_is_as_many_as_asked_for(
        hosts in prop::collection::vec(prop::collection::btree_map(0u32..8, 0usize..2, 0..6), 0..6),
        count in 1usize..20,
    ) {
        let offered: Vec<Offer> = hosts.iter().enumerate().map(|(host, gpus)| Offer {
            host: HostId::from(format!("h{host}").as_str()),
            gpus: gpus.iter().map(|(index, model)| Candidate {
                is_at_risk: false,
                index: *index,
                uuid: GpuUuid::from(format!("GPU-{host}-{index}").as_str()),
                model: ["H200", "A100"][*model].to_owned(),
            }).collect(),
        }).collect();
        let all: Vec<&GpuUuid> = offered.iter().flat_map(|offer| &offer.gpus).map(|gpu| &gpu.uuid).collect();
        let request = GpuRequest { count, per_host: None, unit: 1, beside: &[], closeness: &unknown_closeness };
        match choose(&offered, &request) {
            None => prop_assert!(count > all.len()),
            Some(choice) => {
                let taken: BTreeSet<String> =
                    choice.offers.iter().flat_map(|offer| &offer.gpus).map(|gpu| gpu.uuid.to_string()).collect();
                prop_assert_eq!(taken.len(), count);
                prop_assert!(taken.iter().all(|uuid| all.iter().any(|of| of.as_str() == uuid)));
                let one = offered.iter().any(|offer| offer.gpus.len() >= count);
                prop_assert_eq!(choice.offers.len() == 1, one, "one host if any has enough");
            }
        }
    }
}
