package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// traces is what there is on the machine of this cluster alone, outside its folder; others may come and go beside it. What a cluster makes is
// named after its data folder, or after the folder of its container runtime.
func (c *cluster) traces() []string {
	marks := []string{c.data() + "/", mark(c.data()), mark(filepath.Join(c.data(), "runtime"))}
	var out []string
	add := func(what, text string) {
		for line := range strings.Lines(text) {
			if slices.ContainsFunc(marks, func(m string) bool { return strings.Contains(line, m) }) {
				out = append(out, what+": "+strings.TrimSpace(line))
			}
		}
	}
	mountinfo, _ := os.ReadFile("/proc/self/mountinfo")
	add("mount", string(mountinfo))
	add("process", commandLines())
	add("link", output("ip", "-o", "link"))
	add("rules", output("nft", "list", "tables"))
	add("runtime folder", strings.Join(names("/run/yare/*"), "\n"))
	add("control group", strings.Join(names("/sys/fs/cgroup/*", "/sys/fs/cgroup/*/*"), "\n"))
	return out
}

func mark(folder string) string {
	sum := sha256.Sum256([]byte(folder))
	return hex.EncodeToString(sum[:4])
}

func commandLines() string {
	var out strings.Builder
	paths, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range paths {
		if text, _ := os.ReadFile(path); len(text) > 0 && path != fmt.Sprintf("/proc/%d/cmdline", os.Getpid()) {
			out.WriteString(strings.ReplaceAll(string(text), "\x00", " ") + "\n")
		}
	}
	return out.String()
}
