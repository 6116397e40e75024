// Package crilog reads a container's log file as the Container Runtime Interface
// defines it, and follows it while the container runs.
//
// A line of the file is "TIME STREAM TAGS CONTENT": the time in RFC 3339 with
// nanoseconds, "stdout" or "stderr", "F" for a full line or "P" for a part whose
// rest is in the following lines of that stream. Read joins parts and writes
// what the program wrote.
//
// Following is driven by inotify: on the file for what is appended, on its
// folder for the file that rotation puts in its place. It ends, with everything
// read, when the container has ended.
package crilog
