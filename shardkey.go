package ratelimit

import "strings"

// shardKey names the shard'th sub-key of key: the sub-keys of Key(first, rest...) are Key(first+"#a0", rest...),
// Key(first+"#b0", rest...) to "#z0", then "#a1" and so on. Those of a raw key that Key cannot make, because of its
// colons, have capital letters, so the sub-keys of two keys never meet; keys that share a hash tag share it on each
// shard.
//
// The slot of a key in a Redis Cluster is a CRC16 of its tag, which is linear: how far apart the sub-keys of a key lie
// does not depend on the key. A letter that is the last but one byte puts them further apart than a number at the end
// would.
func shardKey(key string, shard int) string {
	tag, tail, shaped := shape(key)
	letter := byte('a')
	if !shaped {
		tag = key
		if strings.Contains(key, ":") {
			letter = 'A'
		}
	}
	b := make([]byte, 0, len("{#a0}:")+len(key)+8)
	b = append(b, '{')
	switch {
	case !shaped:
		b = appendPart(b, tag, partEscapes)
	case tag != emptyPart:
		b = append(b, tag...)
	}
	b = append(b, '#', letter+byte(shard%26), '0'+byte(shard/26), '}')
	if tail != "" {
		b = append(b, ':')
		b = append(b, tail...)
	}
	return string(b)
}
