//! TLS with libnbd: required or off, with and without client certificates.

use crate::world::World;

/// Creates a CA, a server's and a client's certificate, in the layout that libnbd expects.
pub fn certificates(world: &World) {
    let openssl = |words: &str| {
        let words: Vec<&str> = std::iter::once("openssl").chain(words.split(' ')).collect();
        world.tool("openssl", &words);
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout";
    std::fs::create_dir(world.path("pki")).unwrap();
    std::fs::write(world.path("host.ext"), "subjectAltName=DNS:localhost,IP:127.0.0.1\n").unwrap();
    std::fs::write(world.path("client.ext"), "extendedKeyUsage=clientAuth\n").unwrap();
    openssl(&format!("req -x509 {key} ca-key.pem -out pki/ca-cert.pem -days 30 -subj /CN=ca"));
    for (name, subject, extensions) in
        [("server", "localhost", "host.ext"), ("client", "somebody", "client.ext")]
    {
        openssl(&format!("req {key} pki/{name}-key.pem -out {name}.csr -subj /CN={subject}"));
        openssl(&format!(
            "x509 -req -in {name}.csr -CA pki/ca-cert.pem -CAkey ca-key.pem -CAcreateserial \
             -out pki/{name}-cert.pem -days 30 -extfile {extensions}"
        ));
    }
}

const SERVER: [&str; 4] = ["--tls-cert", "pki/server-cert.pem", "--tls-key", "pki/server-key.pem"];

/// Returns the URI for TLS, over TCP since certificates name hosts.
fn secure_uri(world: &World, server: &crate::world::Server) -> String {
    let addresses = server.ready["nbd"].as_array().unwrap();
    let tcp = addresses.iter().find_map(|address| address.as_str()?.strip_prefix("tcp:")).unwrap();
    let port = tcp.rsplit(':').next().unwrap();
    format!("nbds://localhost:{port}/tank?tls-certificates={}", world.path("pki").display())
}

#[test]
fn tls_carries_everything_and_plain_text_is_turned_away() {
    let world = World::new();
    certificates(&world);
    world.create("5", 3, &[]);
    // Two threads share nbdcopy's four connections.
    let start = ["tank", "m0", "m1", "m2", "--nbd", "tcp:127.0.0.1:0", "--threads", "2"];
    let server = world.serve(&[&start[..], &SERVER].concat());
    assert_eq!(server.ready["tls"], true);
    let uri = secure_uri(&world, &server);
    let info = world.tool("libnbd-bin", &["nbdinfo", &uri]);
    assert!(info.contains("with TLS"), "{info}");
    let data = crate::world::pattern(20 << 20, 10);
    std::fs::write(world.path("data"), &data).unwrap();
    world.nbdcopy("data", &uri);
    world.nbdcopy(&uri, "back");
    let back = std::fs::read(world.path("back")).unwrap();
    assert!(back[..data.len()] == data);
    let plain = world.try_tool("libnbd-bin", &["nbdinfo", &world.uri()]);
    assert_ne!(plain.code, 0, "{plain:?}");
    assert_eq!(server.terminate(), 0);
}

#[test]
fn with_a_ca_only_clients_with_its_certificate_come_in() {
    let world = World::new();
    certificates(&world);
    world.create("1", 2, &[]);
    let start = ["tank", "m0", "m1", "--nbd", "tcp:127.0.0.1:0", "--tls-ca", "pki/ca-cert.pem"];
    let server = world.serve(&[&start[..], &SERVER].concat());
    let uri = secure_uri(&world, &server);
    world.tool("libnbd-bin", &["nbdinfo", &uri]);
    std::fs::remove_file(world.path("pki/client-cert.pem")).unwrap();
    std::fs::remove_file(world.path("pki/client-key.pem")).unwrap();
    let stranger = world.try_tool("libnbd-bin", &["nbdinfo", &uri]);
    assert_ne!(stranger.code, 0, "{stranger:?}");
    assert_eq!(world.order(&["status", "tank"])["state"], "healthy");
    assert_eq!(server.terminate(), 0);
}

#[test]
fn tls_can_be_off_and_files_that_are_no_certificates_are_named() {
    let world = World::new();
    certificates(&world);
    world.create("1", 2, &[]);
    let serve = ["serve", "tank", "m0", "m1", "--control", "unix:c.sock"];
    let off = ["tank", "m0", "m1", "--tls", "off"];
    let server = world.serve(&[&off[..], &SERVER].concat());
    assert_eq!(server.ready["tls"], false);
    world.tool("libnbd-bin", &["nbdinfo", &world.uri()]);
    assert_eq!(server.terminate(), 0);
    world.refused(&[&serve[..], &["--tls", "require"]].concat(), 2, "PPT-2001");
    let cert_only = ["--tls-cert", "pki/server-cert.pem"];
    world.refused(&[&serve[..], &cert_only].concat(), 2, "PPT-2001");
    for files in [
        ["m0", "pki/server-key.pem"],
        ["pki/server-cert.pem", "m0"],
        ["pki/server-cert.pem", "pki/client-key.pem"],
        ["nothing", "pki/server-key.pem"],
    ] {
        let flags = ["--tls-cert", files[0], "--tls-key", files[1]];
        let message = world.refused(&[&serve[..], &flags].concat(), 1, "PPT-1005");
        assert!(files.iter().any(|file| message.contains(file)), "{message}");
    }
}
