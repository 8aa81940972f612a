//! Password files that others can read.

use crate::support::in_real_time;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};

use fairlock::{Check, Client, Config, ErrorKind, Reaction};
use fairlock_testkit::server::{Generation, Server};
use fairlock_testkit::tempdir::TempDir;

/// For a link the target's permissions count. A warning is the default; `Refuse` does not use the
/// password; a corrected mode counts from the next connection.
#[test]
fn a_password_file_that_others_can_read_is_told() {
    in_real_time(|| async {
        let Some(server) = Server::start(Generation::Redis70) else { return };
        let rules = ["ACL", "SETUSER", "ann", "reset", "on", ">CANARY", "~*", "&*", "+@all"];
        server.client().call(&rules);
        let dir = TempDir::new();
        let (file, link) = (dir.path().join("password"), dir.path().join("link"));
        fs::write(&file, "CANARY\n").unwrap();
        // The way Kubernetes lays out secrets.
        symlink("password", &link).unwrap();
        let mode = |mode| fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        let config = |reaction| {
            let config =
                Config::tcp("127.0.0.1", server.port()).username("ann").password_file(&link);
            config.on_check(Check::PasswordFile, reaction)
        };
        let warned = async |reaction| {
            let client = Client::with_config(config(reaction)).await.unwrap();
            let warnings = client.warnings();
            assert!(
                warnings.iter().all(|found| found.check() == Check::PasswordFile),
                "{warnings:?}"
            );
            warnings.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        for (bits, told) in [
            (0o600, None),
            (0o400, None),
            (0o640, Some("its group (mode 640)")),
            (0o644, Some("every user of this host (mode 644)")),
            (0o602, Some("every user of this host (mode 602)")),
        ] {
            mode(bits);
            let found = warned(Reaction::Warn).await;
            assert_eq!(found.len(), usize::from(told.is_some()), "{bits:o}: {found:?}");
            assert!(found.iter().all(|found| found.contains(told.unwrap())), "{found:?}");
            assert!(found.iter().all(|found| !found.contains("CANARY")), "{found:?}");
            assert_eq!(warned(Reaction::Ignore).await, [""; 0], "{bits:o}");
            let refused = Client::with_config(config(Reaction::Refuse)).await.err();
            assert_eq!(refused.is_some(), told.is_some(), "{bits:o}: {refused:?}");
            if let Some(error) = refused {
                assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
                assert!(error.to_string().contains("on-password-file=warn"), "{error}");
            }
        }
        // Without a setting: a warning.
        mode(0o644);
        let config = Config::tcp("127.0.0.1", server.port()).username("ann").password_file(&file);
        assert_eq!(Client::with_config(config).await.unwrap().warnings().len(), 1);
    });
}
