//! Limits of connections that change at run time: in total, by host, by listener, and by the second.

use crate::harness::*;
use pyrklog_dataplane::seam::{ConnectionQuotas, ListenerQuota};
use pyrklog_wire::api::key;

fn called(client: &mut Client) {
    client.call(key::API_VERSIONS, 0, &[]);
}

#[test]
fn a_raised_limit_admits_who_waits() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    test.plane
        .set_connection_quotas(ConnectionQuotas::new(1, 10));
    let mut first = test.client();
    called(&mut first);
    let mut second = test.client();
    second.send(key::API_VERSIONS, 0, &[]);
    test.wait_for_notice("connections_at_limit");
    assert_eq!(test.statistic("connections"), 1);
    test.plane
        .set_connection_quotas(ConnectionQuotas::new(2, 10));
    second.receive(key::API_VERSIONS, 0);
    called(&mut first);
}

#[test]
fn a_lowered_limit_of_a_host_leaves_the_connections_that_it_has() {
    let dir = tempfile::tempdir().unwrap();
    let test = TestPlane::start(dir.path());
    let mut admitted: Vec<Client> = (0..2).map(|_| test.client()).collect();
    admitted.iter_mut().for_each(called);
    test.plane
        .set_connection_quotas(ConnectionQuotas::new(100, 1));
    assert!(test.client().is_closed());
    admitted.iter_mut().for_each(called);
    let quotas = ConnectionQuotas {
        max_of_hosts: vec![([127, 0, 0, 1].into(), 3), ([127, 0, 0, 2].into(), 0)],
        ..ConnectionQuotas::new(100, 1)
    };
    test.plane.set_connection_quotas(quotas);
    called(&mut test.client());
    assert!(test.client_from(2).is_closed());
    called(&mut test.client_from(3));
}

#[test]
fn a_full_listener_does_not_close_another() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    let port = test.plane.listen("OTHER", "127.0.0.1", 0, false).unwrap();
    let quotas = ConnectionQuotas {
        of_listeners: vec![ListenerQuota {
            name: "OTHER".to_owned(),
            max: 1,
            max_per_second: usize::MAX,
        }],
        ..ConnectionQuotas::new(100, 100)
    };
    test.plane.set_connection_quotas(quotas);
    let mut only = Client::connect(port);
    called(&mut only);
    let mut waiting = Client::connect(port);
    waiting.send(key::API_VERSIONS, 0, &[]);
    test.wait_for_notice("connections_at_limit");
    called(&mut test.client());
    drop(only);
    waiting.receive(key::API_VERSIONS, 0);
}

#[test]
fn connections_beyond_the_rate_come_later() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    let quotas = ConnectionQuotas {
        max_per_second: 1,
        ..ConnectionQuotas::new(100, 100)
    };
    test.plane.set_connection_quotas(quotas);
    let mut clients: Vec<Client> = (0..3).map(|_| test.client()).collect();
    for client in &mut clients {
        client.send(key::API_VERSIONS, 0, &[]);
    }
    test.wait_for_notice("connections_too_fast");
    for client in &mut clients {
        client.receive(key::API_VERSIONS, 0);
    }
}
