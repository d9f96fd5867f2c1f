// Package checkpoints keeps artefacts (base models, datasets, adapters, trainer
// state, evaluations) in an object store so that a crash at any instant, a lost
// reply or a second writer can neither damage, lose nor double one.
//
// # Layout
//
//	blobs/sha256/<2 hex>/<64 hex>              content-addressed bytes, at most [MaxBlob] each
//	manifests/<run>/<step>-<generation>.json   one committed artefact, create-only, written last
//	leases/<run>/<generation>.json             who may commit to a run, create-only log
//	refs/<alias>/<generation>.json             what an alias names and named, create-only log
//
// Steps and manifest generations have 8 digits, log generations 20, so that
// lexical order is numeric order.
//
// # Commit
//
// A writer puts blobs first and the manifest last. Blobs are named by their
// SHA-256, so putting one twice, or two writers putting the same one, changes
// nothing; resuming an upload is putting the blobs that are missing. Only the
// manifest makes an artefact visible, and it is one create-only object: it is
// there whole or not at all. Readers start from a reference (key and digest) or
// from [Repo.Latest], verify digests, and never take a listing of blobs for an
// artefact.
//
// # Fencing
//
// A run may be written by a chain of attempts: one attempt stalls, another is
// started, the first wakes. [Repo.Acquire] gives each attempt the next
// generation of the run's lease. Leases have no expiry: acquiring always
// succeeds and fences every earlier generation; whoever schedules attempts
// decides when.
//
// [Repo.Commit] checks that its generation is the newest, creates
// manifests/<run>/<step>-<generation>.json, and checks again. Three things follow.
//
//  1. An acknowledged commit is never lost. Commit returns nil only if no newer
//     lease existed after the manifest landed; a later attempt lists manifests
//     after creating its lease, so it sees that manifest and resumes from it or
//     from a later one.
//  2. A zombie cannot win. Keys hold the generation, so it can neither overwrite
//     nor block a key of a newer attempt; and Latest prefers the highest
//     generation that committed anything, whatever the steps. Acquire commits
//     the artefact it resumes from again under its own generation (a manifest
//     of a kilobyte, no blobs), so from Acquire's return on, whatever an earlier
//     attempt still lands is never Latest.
//  3. A zombie is told: its Commit fails with [ErrFenced], at the latest after
//     its manifest landed. Such a manifest is complete and valid, unacknowledged,
//     and superseded. Only in a run whose newest attempt has found nothing to
//     resume from, and has committed nothing yet, may it be seen by Latest; if
//     training is deterministic it then equals what the newest attempt will commit.
//
// Committing the same content twice at one step and generation is one commit:
// the second returns the first's reference. Different content there is
// [ErrConflict]. Generation 0 is for runs without attempts (datasets, imported
// bases), whose names contain a digest of what they hold; once a run has a lease,
// generation 0 is fenced like any older one.
//
// # Aliases
//
// An alias is a log of promotions: the highest generation is what it names, the
// rest its history, and a rollback is one more entry. Entries are create-only
// and carry a nonce, so when an answer is lost the entry itself says who wrote
// it. Compare-and-swap on one mutable object cannot do that: its ETag returns to
// an old value (ABA), and after a lost reply the swap is applied twice.
//
// # What a store must give
//
// Create-if-absent that lets exactly one of racing writers win, read-after-write
// reads and lists, and nothing else ([Store]). [Probe] measures the first at
// start.
package checkpoints
