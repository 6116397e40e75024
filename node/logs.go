package node

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/yare-project/yare/node/machine"
)

// readHead answers at most limit bytes from the beginning of a file.
func readHead(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit))
}

// logTail answers the text of the last lines of a log in the CRI format (time, stream, tag, text), at most limit bytes.
func logTail(path string, lines, limit int) string {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Sprintf("Error on reading termination message from logs: %v", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return ""
	}
	// Each line has about 50 bytes before its text.
	window := int64(limit + 64*lines)
	if start := info.Size() - window; start > 0 {
		if _, err := f.Seek(start, io.SeekStart); err != nil {
			return ""
		}
	}
	b, err := io.ReadAll(io.LimitReader(f, window))
	if err != nil {
		return ""
	}
	text := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
	text = text[max(len(text)-lines, 0):]
	var out strings.Builder
	for _, l := range text {
		parts := strings.SplitN(l, " ", 4)
		if len(parts) < 4 {
			continue
		}
		out.WriteString(parts[3])
		if parts[2] == "F" {
			out.WriteByte('\n')
		}
	}
	s := out.String()
	return s[max(len(s)-limit, 0):]
}

// The rotation of logs; both are the kubelet's defaults (containerLogMaxSize, containerLogMaxFiles).
const (
	maxLogSize  = 10 << 20
	maxLogFiles = 5
)

// rotateLogs renames the logs that have grown too large, and has the runtime open new ones.
func (a *Agent) rotateLogs(ctx context.Context) {
	for _, w := range a.all() {
		for _, c := range w.view.Load().containers {
			if c.State != machine.Running || c.LogPath == "" {
				continue
			}
			info, err := os.Stat(c.LogPath)
			if err != nil || info.Size() < maxLogSize {
				continue
			}
			if err := a.rotate(ctx, c); err != nil {
				a.cfg.Log.Warn("log rotation", "container", c.Name, "log", c.LogPath, "err", err)
			}
		}
	}
}

func (a *Agent) rotate(ctx context.Context, c machine.Container) error {
	old, err := filepath.Glob(c.LogPath + ".*")
	if err != nil {
		return err
	}
	sort.Strings(old) // their names end with the time
	for len(old) > maxLogFiles-2 {
		if err := os.Remove(old[0]); err != nil {
			return err
		}
		old = old[1:]
	}
	aside := c.LogPath + "." + a.cfg.Clock.Now().UTC().Format("20060102-150405.000000")
	if err := os.Rename(c.LogPath, aside); err != nil {
		return err
	}
	if err := a.cfg.Runtime.ReopenContainerLog(ctx, c.ID); err != nil {
		return fmt.Errorf("reopen: %w", putBack(err, aside, c.LogPath))
	}
	return nil
}

// putBack puts a log back that could not be reopened: the container writes to it still.
func putBack(err error, aside, path string) error {
	if back := os.Rename(aside, path); back != nil {
		return fmt.Errorf("%w (and the log stays at %s: %v)", err, aside, back)
	}
	return err
}

// checkEmptyDirs ends the pods whose emptyDirs hold more than their limit.
func (a *Agent) checkEmptyDirs() {
	for _, w := range a.all() {
		s := w.view.Load()
		if !s.volumes {
			continue
		}
		over := a.volumes.OverLimit(s.pod)
		if over == nil {
			continue
		}
		v := &machine.Verdict{Reason: "Evicted", Message: fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit %q. ", over.Volume, over.Limit.String())}
		w.post(func() {
			if w.mem.Verdict == nil && !w.mem.Released {
				w.mem.Verdict = v
				w.event("Warning", v.Reason, v.Message)
			}
		})
	}
}

// Image garbage: when the images' file system is fuller than high, unused images go, the largest first, until it is no fuller than low. The
// limits are the kubelet's defaults.
const (
	imageHigh = 0.85
	imageLow  = 0.80
)

func (a *Agent) collectImages(ctx context.Context) error {
	info, err := a.cfg.Images.ImageFsInfo(ctx)
	if err != nil || len(info.GetImageFilesystems()) == 0 {
		return err
	}
	mount := info.ImageFilesystems[0].GetFsId().GetMountpoint()
	full := func() bool {
		d, err := a.cfg.Disk(mount)
		return err == nil && d.Total > 0 && float64(d.Total-d.Free)/float64(d.Total) > imageLow
	}
	d, err := a.cfg.Disk(mount)
	if err != nil || d.Total == 0 || float64(d.Total-d.Free)/float64(d.Total) <= imageHigh {
		return err
	}
	unused, err := a.unusedImages(ctx)
	if err != nil {
		return err
	}
	for _, img := range unused {
		if !full() {
			return nil
		}
		if err := a.cfg.Images.RemoveImage(ctx, &runtimeapi.ImageSpec{Image: img.Id}); err != nil {
			return err
		}
		a.cfg.Log.Info("unused image removed: the disk is nearly full", "image", img.RepoTags, "bytes", img.Size)
	}
	return nil
}

func (a *Agent) unusedImages(ctx context.Context) ([]*runtimeapi.Image, error) {
	images, err := a.cfg.Images.ListImages(ctx, nil)
	if err != nil {
		return nil, err
	}
	containers, err := a.cfg.Runtime.ListContainers(ctx, nil)
	if err != nil {
		return nil, err
	}
	used := map[string]bool{}
	for _, c := range containers {
		used[c.ImageRef], used[c.ImageId], used[c.GetImage().GetImage()] = true, true, true
	}
	for _, w := range a.all() {
		s := w.view.Load()
		for i := range s.pod.Spec.InitContainers {
			used[s.pod.Spec.InitContainers[i].Image] = true
		}
		for i := range s.pod.Spec.Containers {
			used[s.pod.Spec.Containers[i].Image] = true
		}
	}
	var out []*runtimeapi.Image
	for _, img := range images {
		busy := img.Pinned || used[img.Id]
		for _, name := range append(append([]string{}, img.RepoTags...), img.RepoDigests...) {
			busy = busy || used[name]
		}
		if !busy {
			out = append(out, img)
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Size > out[j].Size })
	return out, nil
}
