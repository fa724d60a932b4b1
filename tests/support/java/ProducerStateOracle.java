import java.io.BufferedInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.File;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Optional;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.CompletedTxn;
import org.apache.kafka.storage.internals.log.LogOffsetMetadata;
import org.apache.kafka.storage.internals.log.ProducerAppendInfo;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;

/**
 * Kafka's ProducerStateManager, twice, fed with one log after another: a leader, which validates as brokers do and
 * reloads from snapshots, and a follower, which only replicates. Nothing here decides; UnifiedLog's own steps are
 * repeated in their order (append, truncateTo, rebuildProducerState).
 *
 * Standard input: commands, see the switch. Standard output, for each 'F': an int length and the answers so far.
 * Written for Janino, the compiler that PySpark ships, so that a Java without javac is enough: it takes casts where
 * javac takes type arguments, and no lambdas.
 */
public class ProducerStateOracle {
    static final TopicPartition PARTITION = new TopicPartition("orders", 0);
    static final int EXPIRATION_MS = 86400000;
    static final long NOW_MS = 1700000000000L;
    static final AppendOrigin[] ORIGINS = {AppendOrigin.REPLICATION, AppendOrigin.COORDINATOR, AppendOrigin.CLIENT};

    final File leaderDirectory;
    final File followerDirectory;
    final List log = new ArrayList();
    ProducerStateManager leader;
    ProducerStateManager follower;
    long end;

    ProducerStateOracle(File directory) {
        leaderDirectory = new File(directory, "leader");
        followerDirectory = new File(directory, "follower");
        leaderDirectory.mkdirs();
        followerDirectory.mkdirs();
    }

    public static void main(String[] arguments) throws Exception {
        OutputStream out = System.out;
        System.setOut(System.err);
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in, 1 << 16));
        new ProducerStateOracle(new File(arguments[0])).serve(in, new DataOutputStream(out));
    }

    void serve(DataInputStream in, DataOutputStream out) throws Exception {
        ByteArrayOutputStream buffer = new ByteArrayOutputStream();
        DataOutputStream answers = new DataOutputStream(buffer);
        while (true) {
            int command = in.read();
            String refusal = "";
            switch (command) {
                case -1:
                    return;
                case 'F':  // flush: the answers to everything since the last one
                    out.writeInt(buffer.size());
                    buffer.writeTo(out);
                    out.flush();
                    buffer.reset();
                    continue;
                case 'N':  // a new, empty log
                    restartAnew();
                    break;
                case 'A':  // append: origin, transaction version, offsets to leave out, length, batch
                    AppendOrigin origin = ORIGINS[in.readByte()];
                    short version = in.readByte();
                    long gap = in.readInt();
                    byte[] encoded = new byte[in.readInt()];
                    in.readFully(encoded);
                    refusal = append(encoded, origin, version, gap);
                    break;
                case 'T':  // truncate: the last so many batches are gone
                    truncate(in.readInt());
                    break;
                case 'S':  // the leader takes a snapshot, as at the roll of a segment
                    leader.takeSnapshot(false);
                    break;
                case 'B':  // the leader restarts: its snapshots and the log after them
                    leader = manager(leaderDirectory);
                    rebuild(leader);
                    break;
                case 'L':  // the leader restarts from a clean shutdown without any snapshot: it has forgotten all
                    leader.truncateFullyAndStartAt(end);
                    break;
                case 'E':  // a day passes: what is idle is forgotten
                    leader.removeExpiredProducers(NOW_MS + 2L * EXPIRATION_MS);
                    break;
                default:
                    throw new IllegalStateException("no such command: " + command);
            }
            answers.writeUTF(refusal);
            answers.writeLong(log.isEmpty() ? 0L : ((MutableRecordBatch) log.get(log.size() - 1)).baseOffset());
            answers.writeLong(end);
            state(leader, answers);
            state(follower, answers);
        }
    }

    void restartAnew() throws IOException {
        log.clear();
        end = 0L;
        leader = manager(leaderDirectory);
        leader.truncateFullyAndStartAt(0L);
        follower = manager(followerDirectory);
    }

    static ProducerStateManager manager(File directory) throws IOException {
        ProducerStateManagerConfig config = new ProducerStateManagerConfig(EXPIRATION_MS, false);
        return new ProducerStateManager(PARTITION, directory, 900000, config, Time.SYSTEM);
    }

    /** Appends a batch at the end of the log as a leader does, or says why it would not. */
    String append(byte[] encoded, AppendOrigin origin, short version, long gap) {
        MutableRecordBatch batch =
            (MutableRecordBatch) MemoryRecords.readableRecords(ByteBuffer.wrap(encoded)).batches().iterator().next();
        batch.setLastOffset(end + gap + batch.lastOffset() - batch.baseOffset());
        try {
            Map validated = new HashMap();
            Optional completed = update(leader, batch, validated, origin, version);
            Map replicated = new HashMap();
            Optional replica = update(follower, batch, replicated, AppendOrigin.REPLICATION, (short) -1);
            take(leader, validated, completed);
            take(follower, replicated, replica);
        } catch (RuntimeException refused) {
            return refused.getClass().getSimpleName();
        }
        end = batch.nextOffset();
        log.add(batch);
        leader.updateMapEndOffset(end);
        leader.onHighWatermarkUpdated(end);
        follower.updateMapEndOffset(end);
        follower.onHighWatermarkUpdated(end);
        return "";
    }

    static Optional update(
        ProducerStateManager manager, MutableRecordBatch batch, Map producers, AppendOrigin origin, short version) {
        if (!batch.hasProducerId())
            return Optional.empty();
        Optional nothing = Optional.empty();
        return UnifiedLog.updateProducers(manager, batch, producers, nothing, origin, version);
    }

    static void take(ProducerStateManager manager, Map producers, Optional completed) {
        for (Iterator it = producers.values().iterator(); it.hasNext();)
            manager.update((ProducerAppendInfo) it.next());
        if (completed.isPresent())
            manager.completeTxn((CompletedTxn) completed.get());
    }

    void truncate(int batches) throws IOException {
        for (int i = 0; i < batches && !log.isEmpty(); i++)
            log.remove(log.size() - 1);
        end = log.isEmpty() ? 0L : ((MutableRecordBatch) log.get(log.size() - 1)).nextOffset();
        rebuild(leader);
        follower = manager(followerDirectory);
        replay(follower, 0L);
    }

    /**
     * UnifiedLog.rebuildProducerState, which has one more condition: a leader that held nothing at all before does
     * not replay what follows the snapshot. If that has a transaction open, Kafka 4.3.1 holds it for ever, although
     * its marker is in the log: a fault of that leader, which no reader of the log can see.
     */
    void rebuild(ProducerStateManager manager) throws IOException {
        manager.truncateAndReload(0L, end, NOW_MS);
        replay(manager, manager.mapEndOffset());
    }

    void replay(ProducerStateManager manager, long from) {
        for (Iterator it = log.iterator(); it.hasNext();) {
            MutableRecordBatch batch = (MutableRecordBatch) it.next();
            if (batch.baseOffset() >= from) {
                Map producers = new HashMap();
                take(manager, producers, update(manager, batch, producers, AppendOrigin.REPLICATION, (short) -1));
            }
        }
        manager.updateMapEndOffset(end);
        manager.onHighWatermarkUpdated(end);
    }

    /** The first unstable offset, -1 for none, and producer id, epoch and first offset of what is open. */
    static void state(ProducerStateManager manager, DataOutputStream answers) throws IOException {
        Optional unstable = manager.firstUnstableOffset();
        answers.writeLong(unstable.isPresent() ? ((LogOffsetMetadata) unstable.get()).messageOffset : -1L);
        List open = new ArrayList();
        for (Iterator it = manager.activeProducers().values().iterator(); it.hasNext();) {
            ProducerStateEntry entry = (ProducerStateEntry) it.next();
            if (entry.currentTxnFirstOffset().isPresent())
                open.add(entry);
        }
        answers.writeInt(open.size());
        for (Iterator it = open.iterator(); it.hasNext();) {
            ProducerStateEntry entry = (ProducerStateEntry) it.next();
            answers.writeLong(entry.producerId());
            answers.writeShort(entry.producerEpoch());
            answers.writeLong(entry.currentTxnFirstOffset().getAsLong());
        }
    }
}
