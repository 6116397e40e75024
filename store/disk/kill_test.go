package disk_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/yare-project/yare/store/disk"
)

const (
	writerDir   = "YARE_TEST_WRITER_DIR"
	writerCount = 4
)

// TestWriterProcess is the child of TestKill: it writes until it is killed and prints each acknowledged commit.
func TestWriterProcess(t *testing.T) {
	dir := os.Getenv(writerDir)
	if dir == "" {
		t.Skip("only runs as another test's child")
	}
	s, err := disk.Open(disk.Config{Dir: dir, MemTableBytes: 256 << 10})
	if err != nil {
		fmt.Println(err)
		return
	}
	lt := openLedgerTables(t, s)
	var wg sync.WaitGroup
	for writer, first := range verifyLedger(t, s, nil, unknownProgress()) {
		wg.Go(func() {
			for n := first + 1; ; n++ {
				rev, err := lt.write(context.Background(), s, writer, n)
				if err != nil {
					t.Errorf("writer %d: %v", writer, err)
					return
				}
				fmt.Printf("ack %d %d %d\n", writer, n, rev)
			}
		})
	}
	wg.Wait()
}

// unknownProgress allows every number.
func unknownProgress() map[int]progress {
	out := map[int]progress{}
	for writer := range writerCount {
		out[writer] = progress{attempted: 1 << 60}
	}
	return out
}

// TestKill kills a writing process at random moments and wants every commit that it acknowledged.
func TestKill(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	acknowledged := unknownProgress()
	for round := range 4 {
		lines := random.IntN(300)
		runWriter(t, dir, func(line string, kill func()) {
			var writer, number int
			var p progress
			if _, err := fmt.Sscanf(line, "ack %d %d %d", &writer, &number, &p.revision); err != nil {
				t.Errorf("seed %d: the writer said %q", seed, line)
				return
			}
			p.acknowledged = number
			acknowledged[writer] = p
			if lines--; lines < 0 {
				kill()
			}
		})
		s := openDisk(t, disk.Config{Dir: dir})
		reached := verifyLedger(t, s, acknowledged, unknownProgress())
		for writer, p := range acknowledged {
			// One commit at a time: at most the one that wasn't acknowledged is there as well.
			if reached[writer] > p.acknowledged+1 || p.revision > s.Revision() {
				t.Errorf("writer %d: number %d at store revision %d, acknowledged %d at %d", writer, reached[writer], s.Revision(), p.acknowledged, p.revision)
			}
			p.acknowledged = reached[writer] // what has been read may not go any more
			acknowledged[writer] = p
		}
		if err := s.Close(); err != nil || t.Failed() {
			t.Fatalf("seed %d, round %d: %v", seed, round, err)
		}
	}
}

// runWriter runs the writer process and passes it its lines; kill ends it as kill -9 does, and the lines it had written still come. It returns
// what was printed when there is no one to take lines.
func runWriter(t *testing.T, dir string, line func(string, func())) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^TestWriterProcess$", "-test.timeout=60s")
	cmd.Env = append(os.Environ(), writerDir+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed, as it should be
	}()
	if line == nil {
		text, err := io.ReadAll(out)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	scanner := bufio.NewScanner(out)
	for scanner.Scan() {
		// A line that the kill cut short was never acknowledged to anybody.
		if strings.Count(scanner.Text(), " ") == 3 {
			line(scanner.Text(), func() { _ = cmd.Process.Kill() })
		}
	}
	return ""
}
