package pgserver

import (
	"os"
	"os/user"
	"strconv"
)

// unprivileged is who runs PostgreSQL, which refuses to be root's, where the test is root's: the user postgres, or nobody.
func unprivileged() (uid, gid int, ok bool) {
	if os.Geteuid() != 0 {
		return 0, 0, false
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.Atoi(u.Uid)
		gid, err2 := strconv.Atoi(u.Gid)
		if err1 == nil && err2 == nil {
			return uid, gid, true
		}
	}
	return 0, 0, false
}
