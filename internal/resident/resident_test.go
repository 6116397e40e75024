package resident

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

const smaps = `00400000-01c7f000 r--p 00000000 fe:00 10504239                           /opt/yare
Size:              25084 kB
Private_Dirty:         0 kB
01c7f000-04ba8000 r-xp 0187f000 fe:00 10504239                           /opt/yare
Private_Dirty:         0 kB
0855c000-0855d000 r--p 0815c000 fe:00 10504239                           /opt/yare
Private_Dirty:         4 kB
0855d000-08699000 rw-p 0815d000 fe:00 10504239                           /opt/yare
Private_Dirty:         0 kB
7f0000000000-7f0000001000 r--p 00000000 fe:00 7                          /lib/libc.so.6
Private_Dirty:         0 kB
7f0000002000-7f0000003000 r--p 00000000 00:00 0
Private_Dirty:         0 kB
`

func TestOnlyWhatTheFileHolds(t *testing.T) {
	got, err := clean(strings.NewReader(smaps), "/opt/yare")
	if err != nil {
		t.Fatal(err)
	}
	want := []region{{0x400000, 0x1c7f000}, {0x1c7f000, 0x4ba8000}}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(region{})); d != "" {
		t.Error(d)
	}
}

func TestOnceAfterEachBusyTime(t *testing.T) {
	tr := trimmer{due: true}
	const mb = 1 << 20
	var trims []int
	for i, grown := range []uint64{8 * mb, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 100 * mb, 0, 0, 5 * mb, 0, 0, 0, 0, mb, 0, 0, 0} {
		if trim, _ := tr.now(tr.last+grown, 50<<20); trim {
			trims = append(trims, i)
		}
	}
	if d := cmp.Diff([]int{5, 19}, trims); d != "" {
		t.Error(d)
	}
}

func TestGarbageIsCollectedSeldomWhileBusy(t *testing.T) {
	tr := trimmer{}
	var got []int
	for _, grown := range []uint64{8 << 20, 100 << 20, 8 << 20, 0, 8 << 20} {
		_, tr.growth = tr.now(tr.last+grown, 50<<20)
		got = append(got, tr.growth)
	}
	if d := cmp.Diff([]int{quietGrowth, busyGrowth, busyGrowth, quietGrowth, quietGrowth}, got); d != "" {
		t.Error(d)
	}
}

func TestLargeHeapsAreCollectedSoonerAndHugeOnesNot(t *testing.T) {
	var got []int
	for _, live := range []uint64{0, 40 << 20, 80 << 20, 128 << 20, 200 << 20, 512 << 20, 4 << 30} {
		tr := trimmer{}
		_, growth := tr.now(100<<20, live)
		got = append(got, growth)
	}
	if d := cmp.Diff([]int{200, 200, 160, 100, 75, 150, 150}, got); d != "" {
		t.Error(d)
	}
}

// fileBacked is how much of files the process holds in memory, in KiB.
func fileBacked(t *testing.T) int {
	t.Helper()
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(data), "RssFile:")
	if !ok {
		t.Skip("this kernel does not tell RssFile")
	}
	n, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestCleanPagesAreDropped(t *testing.T) {
	const size = 8 << 20
	path := filepath.Join(t.TempDir(), "pages")
	if err := os.WriteFile(path, bytes.Repeat([]byte("page"), size/4), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	pages, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(pages) }()
	touch := func() (sum int) {
		for i := 0; i < size; i += 4096 {
			sum += int(pages[i])
		}
		return sum
	}
	want := touch()
	before := fileBacked(t)
	from := uint64(uintptr(unsafe.Pointer(&pages[0])))
	if err := drop(region{from, from + size}); err != nil {
		t.Fatal(err)
	}
	if after := fileBacked(t); before-after < size>>10/2 {
		t.Errorf("%d KiB of files before, %d after dropping %d", before, after, size>>10)
	}
	if got := touch(); got != want {
		t.Error("the pages came back with other contents")
	}
	if err := Release(); err != nil {
		t.Error(err)
	}
}
