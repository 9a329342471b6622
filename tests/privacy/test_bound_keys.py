"""Keys of a context follow from a secret, and no other context's key follows from them."""

from fdml.privacy.noise import NoiseKey

KEY = NoiseKey(bytes(range(32)))


def test_a_bound_key_is_the_same_for_the_same_facts_and_no_others():
    keys = [
        KEY.bound(),
        KEY.bound(b"a"),
        KEY.bound(b"a", b""),
        KEY.bound(b"", b"a"),
        KEY.bound(b"ab"),
        KEY.bound(b"a", b"b"),
    ]
    assert len({key.secret for key in (KEY, *keys)}) == 7
    assert KEY.bound(b"a", b"b") == NoiseKey(bytes(range(32))).bound(b"a", b"b")
    assert KEY.bound(b"a") != NoiseKey(b"o" * 32).bound(b"a")
    assert {len(key.secret) for key in keys} == {32}


def test_a_fingerprint_tells_keys_apart_and_shows_none():
    assert KEY.fingerprint == NoiseKey(bytes(range(32))).fingerprint
    assert KEY.fingerprint != NoiseKey(b"o" * 32).fingerprint
    assert KEY.fingerprint not in KEY.secret.hex()
    assert KEY.fingerprint != KEY.bound(b"a").fingerprint
