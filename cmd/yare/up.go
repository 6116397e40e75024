package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/yare-project/yare/internal/kubeconfig"
	"github.com/yare-project/yare/internal/pidfile"
	"github.com/yare-project/yare/server"
)

// readyLine ends the report that a background process gives the one that started it.
const readyLine = "ready"

// reportFD is the descriptor on which a background process reports.
const reportFD = 3

func upCommand() *cobra.Command {
	f := &flags{}
	var background, reporting bool
	command := &cobra.Command{
		Use:   "up",
		Short: "Start server and node in one process",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			config, err := f.resolve()
			if err == nil {
				err = f.checkKubeconfig()
			}
			if err != nil {
				return err
			}
			if background {
				return f.startInBackground(command.OutOrStdout())
			}
			out := command.OutOrStdout()
			var report io.WriteCloser
			if reporting {
				report = os.NewFile(reportFD, "report")
				out = report
			}
			return f.runCluster(command.Context(), config, out, report)
		},
	}
	f.add(command.Flags())
	command.Flags().BoolVarP(&background, "detach", "d", false, "start in the background and return when the cluster is ready")
	command.Flags().BoolVar(&reporting, "report-start", false, "report the start on descriptor 3 (used by --detach)")
	_ = command.Flags().MarkHidden("report-start")
	return command
}

// runCluster starts everything, says so, and stays until ctx ends or a part fails.
func (f *flags) runCluster(ctx context.Context, config *server.Config, out io.Writer, report io.Closer) error {
	config.Steps = printStep(out)
	cluster, err := server.Start(ctx, config)
	if err != nil {
		if report != nil {
			fmt.Fprintln(out, "failed: "+err.Error())
		}
		return err
	}
	if err := f.announce(cluster, out); err != nil {
		fmt.Fprintln(out, "warning: "+err.Error())
	}
	if report != nil {
		fmt.Fprintln(out, readyLine)
		report.Close()
	}
	return cluster.Wait(ctx)
}

func printStep(out io.Writer) func(server.Step) {
	return func(s server.Step) {
		fmt.Fprintf(out, "  %-28s %6d ms  (at %d ms)\n", s.Name, s.Took.Milliseconds(), s.Since.Milliseconds())
	}
}

// checkKubeconfig refuses, before anything starts, a kubeconfig that could not be written in the end. Without a home folder there is none to
// write, which is how services run: the one in the data folder must do.
func (f *flags) checkKubeconfig() error {
	path := f.kubeconfig
	if path == "" {
		path, err := kubeconfig.UserFile(os.Getenv)
		if err != nil {
			return nil
		}
		_, err = kubeconfig.Server(path)
		return err
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("--write-kubeconfig %s is not a file: give the path of one", path)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("--write-kubeconfig %s: cannot make its folder: %w", path, err)
	}
	return nil
}

// announce writes the kubeconfig and tells how to use the cluster.
func (f *flags) announce(cluster *server.Cluster, out io.Writer) error {
	entry := cluster.Admin(f.context)
	if err := kubeconfig.Write(f.path("kubeconfig"), entry); err != nil {
		return err
	}
	if f.kubeconfig != "" {
		if err := kubeconfig.Write(f.kubeconfig, entry); err != nil {
			return err
		}
		_, err := fmt.Fprintf(out, "Use it:  export KUBECONFIG=%s\n", f.kubeconfig)
		return err
	}
	path, err := kubeconfig.UserFile(os.Getenv)
	if err != nil {
		return err
	}
	if err := kubeconfig.Merge(path, entry); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "Use it:  kubectl get nodes   (context %q in %s)\n", f.context, path)
	return err
}

// startInBackground runs this command again without --detach in a session of its own and waits for its report.
func (f *flags) startInBackground(out io.Writer) error {
	if err := server.NeedRoot(); err != nil {
		return err
	}
	if p, alive, err := pidfile.Read(f.path(server.PIDFile)); err != nil {
		return err
	} else if alive {
		_, err := fmt.Fprintf(out, "Yare runs from %s already (process %d)\n", f.config.DataDir, p.PID)
		return err
	}
	if err := os.MkdirAll(f.config.DataDir, 0o700); err != nil {
		return fmt.Errorf("cannot make the data folder %s: %w; give another with --data-dir", f.config.DataDir, errors.Unwrap(err))
	}
	log, err := os.OpenFile(f.path("yare.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("cannot open the log: %w", err)
	}
	defer log.Close()
	reader, writer, err := os.Pipe()
	if err != nil {
		return err
	}
	defer reader.Close()
	child := exec.Command("/proc/self/exe", backgroundArgs(os.Args[1:])...)
	child.Args[0] = os.Args[0]
	child.Stdout, child.Stderr = log, log
	child.ExtraFiles = []*os.File{writer}
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := child.Start(); err != nil {
		writer.Close()
		return err
	}
	writer.Close()
	return relay(reader, out, child, log.Name())
}

// relay copies the child's report to out until it is ready, fails, or ends.
func relay(report io.Reader, out io.Writer, child *exec.Cmd, log string) error {
	lines := bufio.NewScanner(report)
	for lines.Scan() {
		line := lines.Text()
		if line == readyLine {
			return child.Process.Release()
		}
		if reason, failed := strings.CutPrefix(line, "failed: "); failed {
			_ = child.Wait()
			return errors.New(reason)
		}
		fmt.Fprintln(out, line)
	}
	err := child.Wait()
	return fmt.Errorf("the background process ended before the cluster was ready (%v); its log is %s", err, log)
}

func backgroundArgs(args []string) []string {
	var out []string
	for _, a := range args {
		if a != "-d" && a != "--detach" && a != "--detach=true" && a != "-d=true" {
			out = append(out, a)
		}
	}
	return append(out, "--report-start")
}

func downCommand() *cobra.Command {
	f := &flags{}
	var purge bool
	command := &cobra.Command{
		Use:   "down",
		Short: "Stop the cluster and its containers, and leave the host as it was",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := stopProcess(command.Context(), f.path(server.PIDFile)); err != nil {
				return err
			}
			if err := f.forget(); err != nil {
				fmt.Fprintln(command.ErrOrStderr(), "warning: "+err.Error())
			}
			return server.Clean(command.Context(), f.config.DataDir, f.config.RuntimeDir, purge)
		},
	}
	f.add(command.Flags())
	command.Flags().BoolVar(&purge, "purge", false, "remove the data folder too")
	return command
}

// endTime is how long a process may take to end: the requests that it has begun are answered, and each may take a minute.
const endTime = 2 * time.Minute

// stopProcess ends the running Yare and waits until it is gone: politely, then by force.
func stopProcess(ctx context.Context, path string) error {
	p, alive, err := pidfile.Read(path)
	if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("cannot read %s, it belongs to another user: run this as that user, or as root (sudo)", path)
	}
	if err != nil || !alive {
		return err
	}
	process, err := os.FindProcess(p.PID)
	if err != nil {
		return err
	}
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if err := process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("cannot stop process %d: %w", p.PID, err)
		}
		if gone(ctx, p, endTime) {
			return nil
		}
	}
	return fmt.Errorf("process %d does not end, even when killed: is its disk hanging?", p.PID)
}

func gone(ctx context.Context, p pidfile.Process, within time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for p.Alive() {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
	return true
}

// forget takes the cluster's context out of the user's kubeconfig.
func (f *flags) forget() error {
	server, err := kubeconfig.Server(f.path("kubeconfig"))
	if err != nil || server == "" {
		return err
	}
	path, err := kubeconfig.UserFile(os.Getenv)
	if err != nil {
		return err
	}
	return kubeconfig.Remove(path, f.context, server)
}
